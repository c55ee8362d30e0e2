"""Calls the rate limit service with grpcio, and prints the answers as JSON."""

import json
import os
import sys

import grpc

proto, target, calls = sys.argv[1], sys.argv[2], int(sys.argv[3])
sys.path.insert(0, os.path.dirname(proto))
messages, services = grpc.protos_and_services(os.path.basename(proto))

channel = grpc.insecure_channel(target)
stub = services.RateLimitServiceStub(channel)
descriptor = messages.RateLimitDescriptor(
    entries=[messages.RateLimitDescriptor.Entry(key="k", value="python")]
)
request = messages.RateLimitRequest(domain="d", descriptors=[descriptor])
statuses = [stub.ShouldRateLimit(request).statuses[0] for _ in range(calls)]
limit = statuses[0].current_limit
try:
    stub.ShouldRateLimit(messages.RateLimitRequest(descriptors=[descriptor]))
    error = None
except grpc.RpcError as failure:
    error = [failure.code().name, failure.details()]
print(
    json.dumps(
        {
            "remaining": [status.limit_remaining for status in statuses],
            "limit": [limit.requests_per_unit, limit.unit],
            "error": error,
        }
    )
)
