#!/usr/bin/env python3
"""Stands between clients and a server on unix sockets: carries bytes later, and cuts all connections now and then.

    proxy.py LISTEN SERVER MS_EACH_WAY SECONDS_BETWEEN_CUTS

What is on its way is not held up by what is before it, so requests that are sent together arrive together. With 0 seconds
nothing is cut. SIGUSR1 cuts at once. Prints how often it cut, at its end.
"""
import asyncio
import os
import signal
import sys

listen, server, delay, every = sys.argv[1], sys.argv[2], float(sys.argv[3]) / 1000, float(sys.argv[4])
lines, cuts = set(), 0


async def carry(reader, writer):
    """Takes bytes off one side and gives them to the other, each `delay` later; at most 64 MiB are on their way."""
    loop, under_way, room = asyncio.get_running_loop(), asyncio.Queue(1024), 64 << 10

    async def deliver():
        while (item := await under_way.get()) is not None:
            due, data = item
            await asyncio.sleep(max(0, due - loop.time()))
            writer.write(data)
            await writer.drain()

    delivery = asyncio.create_task(deliver())
    try:
        while data := await reader.read(room):
            await under_way.put((loop.time() + delay, data))
        await under_way.put(None)
        await delivery
    except OSError:
        delivery.cancel()
    finally:
        writer.close()


async def accept(reader, writer):
    try:
        to_reader, to_writer = await asyncio.open_unix_connection(server)
    except OSError:
        return writer.close()
    both = (writer, to_writer)
    lines.update(both)
    await asyncio.gather(carry(reader, to_writer), carry(to_reader, writer), return_exceptions=True)
    lines.difference_update(both)


def cut():
    global cuts
    cuts += bool(lines)
    for writer in list(lines):
        writer.transport.abort()


async def main():
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, over.set)
    loop.add_signal_handler(signal.SIGUSR1, cut)
    if os.path.exists(listen):
        os.unlink(listen)
    await asyncio.start_unix_server(accept, listen)
    while not over.is_set():
        try:
            await asyncio.wait_for(over.wait(), every or None)
        except asyncio.TimeoutError:
            cut()
    print(cuts, flush=True)
    # What is on its way is of no value any more.
    os._exit(0)


asyncio.run(main())
