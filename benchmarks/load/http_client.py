"""A closed loop with httpx, as one would write it; a program, so that its process is measured.

    python http_client.py httpx|httpx-aiohttp PORT CONCURRENCY REQUESTS TOKENS FILE

Writes arrival records (see arrivals.h) and prints the CPU seconds of the run.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time

import httpx


def transport(name: str, concurrency: int) -> httpx.AsyncBaseTransport:
    limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    if name == "httpx":
        return httpx.AsyncHTTPTransport(limits=limits)
    from httpx_aiohttp import AiohttpTransport

    return AiohttpTransport(limits=limits)


async def main() -> None:
    name, port, *numbers, file = sys.argv[1:]
    concurrency, requests, tokens = map(int, numbers)
    numbers_left = iter(range(requests))
    records: list[tuple[int, int, int]] = []

    async def one_client(http: httpx.AsyncClient) -> None:
        for number in numbers_left:
            line = f"Request {name}-1-{concurrency}-{number:04d}"
            body = {
                "model": "truth",
                "messages": [{"role": "user", "content": f"{line}\n\n{'hello ' * 100}"}],
                "max_tokens": tokens,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            event = 0
            records.append((number, event, time.monotonic_ns()))
            async with http.stream("POST", "/v1/chat/completions", json=body) as response:
                async for line in response.aiter_lines():
                    stamp = time.monotonic_ns()
                    data = line.removeprefix("data: ")
                    if not data or data == "[DONE]":
                        continue
                    choices = json.loads(data)["choices"]
                    if choices and choices[0]["delta"]["content"]:
                        event += 1
                        records.append((number, event, stamp))

    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", transport=transport(name, concurrency), timeout=None
    ) as http:
        await asyncio.gather(*(one_client(http) for _ in range(concurrency)))
    print(time.process_time() - started_s)
    with open(file, "wb") as out:
        for record in records:
            out.write(struct.pack("<IIq", *record))


if __name__ == "__main__":
    started_s = time.process_time()
    asyncio.run(main())
