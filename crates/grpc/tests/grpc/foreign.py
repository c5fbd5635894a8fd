"""Calls a gRPC server by a client of another implementation, and prints all that it sees, as JSON.

    foreign.py ADDRESS < calls

Each line of the input is a call: {"method", "message" (hex), "metadata", "timeout", "stream",
"compression"}. Each line of the output is the result of one call.
"""

import json
import sys

import grpc


def readable(metadata):
    """Metadata as text; what is binary as hexadecimal digits."""
    pairs = metadata or ()
    return [[name, value.hex() if isinstance(value, bytes) else value] for name, value in pairs]


def bytes_as_they_are(message):
    return message


def begin(channel, call):
    kind = channel.unary_stream if call.get("stream") else channel.unary_unary
    method = kind(call["method"], bytes_as_they_are, bytes_as_they_are)
    metadata = [tuple(pair) for pair in call.get("metadata", [])]
    message = bytes.fromhex(call["message"])
    arguments = {"metadata": metadata, "timeout": call.get("timeout", 60)}
    if call.get("stream"):
        return method(message, **arguments)
    return method.future(message, **arguments)


def seen(channel, call):
    answer = begin(channel, call)
    messages = []
    try:
        messages = list(answer) if call.get("stream") else [answer.result()]
    except grpc.RpcError:
        pass
    return {
        "messages": [message.hex() for message in messages],
        "initial": readable(answer.initial_metadata()),
        "trailing": readable(answer.trailing_metadata()),
        "code": answer.code().name,
        "details": answer.details(),
    }


def main(address):
    limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(address, options=limits) as channel:
        for line in sys.stdin:
            print(json.dumps(seen(channel, json.loads(line)), sort_keys=True), flush=True)


main(sys.argv[1])
