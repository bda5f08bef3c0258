import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/** Serves a catalog of tables in a folder, for programs of this machine alone: PORT FOLDER. */
public class IcebergRest {
  public static void main(String[] arguments) throws Exception {
    Map<String, String> settings = Map.of(
        "catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog",
        "jdbc.schema-version", "V1",
        "uri", "jdbc:sqlite:" + arguments[1] + "/catalog.db",
        "warehouse", "file://" + arguments[1] + "/warehouse");
    var catalog = CatalogUtil.buildIcebergCatalog("tests", settings, new Configuration());
    var server = new Server();
    var connector = new ServerConnector(server);
    connector.setHost("127.0.0.1");
    connector.setPort(Integer.parseInt(arguments[0]));
    server.addConnector(connector);
    var context = new ServletContextHandler();
    context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
    server.setHandler(context);
    server.start();
    server.join();
  }
}
