import java.sql.*;

/** Asks a SQL gateway over Flink's JDBC driver, and prints what it answers. */
public class Ask {
    public static void main(String[] arguments) throws Exception {
        Class.forName("org.apache.flink.table.jdbc.FlinkDriver");
        try (Connection connection = DriverManager.getConnection("jdbc:flink://" + arguments[0]);
             Statement statement = connection.createStatement()) {
            System.out.println(connection.getCatalog() + "." + connection.getSchema());
            statement.execute("CREATE TABLE n (x INT NOT NULL) WITH ('connector' = 'datagen', 'number-of-rows' = '3', "
                + "'fields.x.kind' = 'sequence', 'fields.x.start' = '1', 'fields.x.end' = '3')");
            statement.execute("CREATE TABLE o (x INT) WITH ('connector' = 'blackhole')");
            try (ResultSet rows = statement.executeQuery("SELECT x, CAST(x AS DECIMAL(10, 2)), TIMESTAMP '2024-01-02 03:04:05', "
                    + "DATE '2024-01-02', CAST(NULL AS STRING), x > 1 FROM n")) {
                while (rows.next()) {
                    System.out.println(rows.getInt(1) + " " + rows.getBigDecimal(2) + " " + rows.getTimestamp(3) + " "
                        + rows.getDate(4) + " " + rows.getString(5) + " " + rows.getBoolean(6));
                }
            }
            try (ResultSet rows = connection.getMetaData().getCatalogs()) {
                while (rows.next()) System.out.println("catalog " + rows.getString(1));
            }
            statement.execute("INSERT INTO o SELECT x FROM n");
            try {
                statement.executeQuery("SELECT nope FROM n");
            } catch (Exception refused) {
                // Of this driver's own kind, or one of the client below it if the statement fails a moment later.
                Throwable cause = refused;
                while (cause.getCause() != null) cause = cause.getCause();
                System.out.println("refused: " + cause.getMessage().contains("no column 'nope'"));
            }
        }
    }
}
