/** The process: node dist/main.js [--host ADDRESS] [--port NUMBER] [--cert FILE --key FILE] */

import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from "node:http";
import { createServer as createTLSServer } from "node:https";
import type { AddressInfo } from "node:net";
import { parseArgs } from "node:util";

import { filter, prioritize } from "./seats.js";
import { readArgs } from "./wire.js";

/** 5000 whole nodes of 13 KB. */
const MAX_BODY_BYTES = 64 * 1024 * 1024;
/** Seconds after which a pod that was turned down is worth another try: licences come back unannounced. */
const RETRY_AFTER = 15;

class TooLarge extends Error {}

const { values: options } = parseArgs({
  options: {
    host: { type: "string", default: "127.0.0.1" },
    port: { type: "string", default: "8888" },
    cert: { type: "string" },
    key: { type: "string" },
  },
});

const listener: RequestListener = (request, response) => {
  handle(request, response).catch((error: unknown) => {
    console.error(request.url, error);
    answer(response, 500, { Error: text(error) });
  });
};

async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const route = `${request.method} ${request.url}`;
  if (route === "GET /healthz") {
    response.end("ok");
  } else if (route === "POST /filter" || route === "POST /prioritize") {
    await callExtender(request, response);
  } else {
    answer(response, 404, { Error: `there is no ${route} here` });
  }
}

async function callExtender(request: IncomingMessage, response: ServerResponse): Promise<void> {
  let args;
  try {
    args = readArgs(await readBody(request));
  } catch (error) {
    answer(response, error instanceof TooLarge ? 413 : 400, { Error: `${request.url}: ${text(error)}` });
    return;
  }
  if (request.url === "/prioritize") {
    answer(response, 200, prioritize(args));
    return;
  }
  try {
    const result = filter(args);
    if (Object.keys(result.FailedNodes ?? {}).length > 0) {
      response.setHeader("Retry-After", RETRY_AFTER);
    }
    answer(response, 200, result);
  } catch (error) {
    answer(response, 200, { Error: text(error) });
  }
}

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MAX_BODY_BYTES) {
      throw new TooLarge(`the request has more than ${MAX_BODY_BYTES} bytes`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

function answer(response: ServerResponse, status: number, value: unknown): void {
  const body = JSON.stringify(value);
  response.writeHead(status, {
    "Content-Type": "application/json",
    "Content-Length": Buffer.byteLength(body),
  });
  response.end(body);
}

/** What went wrong, for the body of the answer: the scheduler shows it. */
function text(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

const tls = options.cert !== undefined;
const server = tls
  ? createTLSServer({ cert: readFileSync(options.cert ?? ""), key: readFileSync(options.key ?? "") }, listener)
  : createServer(listener);
// Longer than schedulers keep idle connections, so that it is they who close them.
server.keepAliveTimeout = 30_000;
server.listen(Number(options.port), options.host, () => {
  const { address, port } = server.address() as AddressInfo;
  console.log(`listening on ${tls ? "https" : "http"}://${address}:${port}`);
});
for (const signal of ["SIGTERM", "SIGINT"] as const) {
  process.on(signal, () => {
    server.close();
    server.closeIdleConnections();
  });
}
