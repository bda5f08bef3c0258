#!/usr/bin/env python3
"""A collector of OpenTelemetry that reads requests with the messages that OpenTelemetry publishes, for tests.

Usage: otlp_collector.py [REFUSED]

Listens on a free port of 127.0.0.1, whose number is the first line that it prints. Each request becomes a line of
JSON: its path, its headers and its message. The first REFUSED requests are answered with status 503.
"""

import http.server
import json
import sys

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

REQUESTS = {
    "/v1/logs": logs_service_pb2.ExportLogsServiceRequest,
    "/v1/metrics": metrics_service_pb2.ExportMetricsServiceRequest,
    "/v1/traces": trace_service_pb2.ExportTraceServiceRequest,
}


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes requests."""

    refused = int(sys.argv[1]) if len(sys.argv) > 1 else 0

    def do_POST(self):
        """Reads one message. A message that is wrong ends the collector."""
        body = self.rfile.read(int(self.headers["content-length"]))
        message = REQUESTS[self.path]()
        message.ParseFromString(body)
        # Fields that the message does not declare are kept as they came, and are no error.
        everything = message.SerializeToString(deterministic=True)
        message.DiscardUnknownFields()
        is_known = message.SerializeToString(deterministic=True) == everything
        is_refused = Collector.refused > 0
        Collector.refused -= 1
        line = {
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "is_known": is_known,
            "is_refused": is_refused,
            "message": MessageToDict(message),
        }
        print(json.dumps(line), flush=True)
        self.send_response(503 if is_refused else 200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        """Says nothing."""


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
print(server.server_address[1], flush=True)
server.serve_forever()
