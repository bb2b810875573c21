"""Receives OTLP traces over gRPC and over HTTP, as OpenTelemetry's own messages read them, and prints each span as a line of JSON.

usage: otlp_receiver.py GRPC_PORT HTTP_PORT. Prints "ready" first. What does not parse is refused, and ends it with an error.
"""

import gzip
import json
import sys
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as messages
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as services

LOCK = threading.Lock()


def value(any_value):
    kind = any_value.WhichOneof("value")
    return None if kind in (None, "array_value", "kvlist_value") else getattr(any_value, kind)


def attributes(pairs):
    return {pair.key: value(pair.value) for pair in pairs}


def tell(request, protocol):
    lines = []
    for of_resource in request.resource_spans:
        resource = attributes(of_resource.resource.attributes)
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                lines.append(
                    {
                        "protocol": protocol,
                        "service": resource.get("service.name"),
                        "scope": of_scope.scope.name,
                        "name": span.name,
                        "kind": span.kind,
                        "trace_id": span.trace_id.hex(),
                        "span_id": span.span_id.hex(),
                        "parent_span_id": span.parent_span_id.hex(),
                        "start": span.start_time_unix_nano,
                        "end": span.end_time_unix_nano,
                        "attributes": attributes(span.attributes),
                    }
                )
    with LOCK:
        for line in lines:
            print(json.dumps(line), flush=True)


class Traces(services.TraceServiceServicer):
    def Export(self, request, context):
        tell(request, "grpc")
        return messages.ExportTraceServiceResponse()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        sound = self.path == "/v1/traces" and self.headers.get("Content-Type") == "application/x-protobuf"
        if sound:
            tell(messages.ExportTraceServiceRequest.FromString(body), "http")
        answer = messages.ExportTraceServiceResponse().SerializeToString()
        self.send_response(200 if sound else 400)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments):
        pass


def main():
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    services.add_TraceServiceServicer_to_server(Traces(), server)
    server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
    server.start()
    web = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler)
    print("ready", flush=True)
    web.serve_forever()


main()
