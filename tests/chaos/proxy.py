"""A TCP proxy that breaks connections on demand: between agents and their server.

It passes bytes and knows nothing of what they mean. Everything about it happens on one thread of its own.
"""

import asyncio
import threading

UP, DOWN = "up", "down"  # from the agent to the server, and back


class FaultProxy:
    def __init__(self, port, to_port):
        self.port, self.to_port = port, to_port
        self.delay_s = 0.0
        self.refusing = False
        self.connections = 0
        self._pairs = set()
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(10), "the proxy listens"

    # --- faults, from the test's thread ----------------------------------------------------------------------------

    def cut(self):
        """Ends every connection at once, as a reset."""
        self._call(self._cut)

    def stall(self, *directions):
        """Passes nothing in these directions. The connections stay open, and new ones can be made: half open."""
        self._call(lambda: [self._gates[d].clear() for d in directions])

    def flow(self):
        """No more stalls, delays or refusals."""

        def free():
            for gate in self._gates.values():
                gate.set()
            self.delay_s, self.refusing = 0.0, False

        self._call(free)

    def refuse(self):
        """Accepts no new connection."""
        self._call(lambda: setattr(self, "refusing", True))

    def delay(self, seconds):
        self._call(lambda: setattr(self, "delay_s", seconds))

    def close(self):
        self._call(self._cut)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    # --- the thread ------------------------------------------------------------------------------------------------

    def _call(self, act):
        done = threading.Event()

        def run():
            act()
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(10), "the proxy answers"

    def _run(self, started):
        asyncio.set_event_loop(self._loop)
        self._gates = {UP: asyncio.Event(), DOWN: asyncio.Event()}
        for gate in self._gates.values():
            gate.set()
        self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", self.port))
        started.set()
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def _cut(self):
        for writers in list(self._pairs):
            for writer in writers:
                writer.transport.abort()

    async def _serve(self, reader, writer):
        if self.refusing:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.to_port)
        except OSError:
            writer.transport.abort()
            return
        self.connections += 1
        pair = (writer, back)
        self._pairs.add(pair)
        try:
            await asyncio.gather(self._pass(reader, back, UP), self._pass(there, writer, DOWN))
        finally:
            self._pairs.discard(pair)
            for one in pair:
                one.transport.abort()

    async def _pass(self, reader, writer, direction):
        try:
            while True:
                data = await reader.read(65536)
                await self._gates[direction].wait()
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if not data:
                    writer.close()
                    return
                writer.write(data)
                await writer.drain()
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
