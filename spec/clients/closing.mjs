// A web server whose connections die: the second request of a connection is read and gets no answer. Usage: closing.mjs [KEY CERTIFICATE].
// It prints its port, and a fact for each request to /die/HOW/ID when its head has been read: those of a connection that dies, and those that a
// client sends again on another connection, which are answered. HOW: "whole" closes when the body was read, "head" when the head was read,
// "reset" sends a RST when the body was read.
import { readFileSync } from "node:fs";
import net from "node:net";
import tls from "node:tls";

const say = (fact) => process.stdout.write(JSON.stringify(fact) + "\n");
const answer = (socket) => socket.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");

function serve(socket) {
  let rest = Buffer.alloc(0), count = 0, request;
  const end = (how) => how === "reset" && socket.resetAndDestroy && !socket.encrypted ? socket.resetAndDestroy() : socket.destroy();
  socket.on("error", () => {});
  socket.on("data", (bytes) => {
    rest = Buffer.concat([rest, bytes]);
    for (;;) {
      if (!request) {
        const at = rest.indexOf("\r\n\r\n");
        if (at < 0) return;
        const head = rest.subarray(0, at).toString();
        const [, method, how, id] = head.match(/^(\w+) \/die\/(\w+)\/(\S+) /) ?? [];
        request = { how, length: Number(head.match(/content-length: (\d+)/i)?.[1] ?? 0), number: ++count };
        rest = rest.subarray(at + 4);
        if (id) say({ fact: "run", id, method, number: count });
        if (how === "head" && count > 1) return end(how);
      }
      if (rest.length < request.length) return;
      rest = rest.subarray(request.length);
      const { how, number } = request;
      request = undefined;
      if (how && number > 1) return end(how);
      answer(socket);
    }
  });
}

const [key, certificate] = process.argv.slice(2);
const server = key ? tls.createServer({ key: readFileSync(key), cert: readFileSync(certificate) }, serve) : net.createServer(serve);
server.listen(0, "127.0.0.1", () => say({ fact: "port", port: server.address().port }));
process.stdin.on("end", () => process.exit(0)).resume();
