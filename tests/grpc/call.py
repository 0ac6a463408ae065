"""One call by grpcio, and what the client was told of it as one line of JSON.

usage: call.py ADDRESS [SERVICE_CONFIG]
"""

import json
import sys

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status


def told(error):
    answer = {
        "code": error.code().name,
        "message": error.details(),
        "pushback": [
            value
            for name, value in error.trailing_metadata()
            if name == "grpc-retry-pushback-ms"
        ],
        "retry_delay_ms": None,
        "quota_ids": [],
    }
    # None without details. Raises where the status inside is not the one outside.
    status = rpc_status.from_call(error)
    for detail in status.details if status else []:
        retry, quota = error_details_pb2.RetryInfo(), error_details_pb2.QuotaFailure()
        if detail.Unpack(retry):
            answer["retry_delay_ms"] = retry.retry_delay.ToMilliseconds()
        elif detail.Unpack(quota):
            answer["quota_ids"] = [each.quota_id for each in quota.violations]
        else:
            raise ValueError(f"of a type that nobody expects: {detail.type_url}")
    return answer


address, *config = sys.argv[1:]
options = [("grpc.service_config", each) for each in config]
with grpc.insecure_channel(address, options) as channel:
    # Messages stay bytes: the empty ones are valid for any type.
    check = channel.unary_unary("/grpc.health.v1.Health/Check")
    try:
        check(b"", timeout=60)
        print(json.dumps({"code": "OK"}))
    except grpc.RpcError as error:
        print(json.dumps(told(error)))
