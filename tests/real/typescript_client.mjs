// Either TypeScript client, in either era, over stdio or HTTP: `sdk` is the first one, which knows the older era alone.
import { createRequire } from "node:module";

// `job` holds `server`, an entry of .mcp.json, `client` and `era`.
export function open(packages, { server, client: which = "sdk", era = "legacy" }, name, capabilities = {}) {
  const from = createRequire(`${packages}/`);
  const old = which === "sdk";
  const kit = old
    ? {
        ...from("@modelcontextprotocol/sdk/client/index.js"),
        ...from("@modelcontextprotocol/sdk/client/streamableHttp.js"),
        ...from("@modelcontextprotocol/sdk/client/stdio.js"),
        ...from("@modelcontextprotocol/sdk/types.js"),
      }
    : { ...from("@modelcontextprotocol/client"), ...from("@modelcontextprotocol/client/stdio") };
  const options = { capabilities };
  if (!old) options.versionNegotiation = { mode: era === "modern" ? { pin: "2026-07-28" } : "legacy" };
  const client = new kit.Client({ name, version: "1" }, options);

  return {
    client,
    old,
    kit,
    connect() {
      if (server.type === "http") return client.connect(new kit.StreamableHTTPClientTransport(new URL(server.url)));
      const env = { ...process.env, ...server.env };
      return client.connect(new kit.StdioClientTransport({ ...server, env, stderr: "inherit" }));
    },
    // The first client takes a schema of the result before the options.
    call: (tool, given = {}, more) =>
      old
        ? client.callTool({ name: tool, arguments: given }, undefined, more)
        : client.callTool({ name: tool, arguments: given }, more),
    // It also takes schemas where the newer one takes a method's name.
    answer: (method, schema, reply) => client.setRequestHandler(old ? kit[schema] : method, reply),
    hear: (method, schema, told) => client.setNotificationHandler(old ? kit[schema] : method, told),
  };
}
