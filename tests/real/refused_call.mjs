// Calls one tool with the TypeScript client and prints what it delivered, as one JSON object.
// node refused_call.mjs PACKAGES '{"server": {...an entry of .mcp.json...}, "tool": "...", "arguments": {...}}'
import { createRequire } from "node:module";

const [packages, job] = process.argv.slice(2);
const { server, tool, arguments: input } = JSON.parse(job);
const from = createRequire(`${packages}/`);
const { Client } = from("@modelcontextprotocol/sdk/client/index.js");

function transport() {
  if (server.type === "http") {
    const { StreamableHTTPClientTransport } = from("@modelcontextprotocol/sdk/client/streamableHttp.js");
    return new StreamableHTTPClientTransport(new URL(server.url));
  }
  const { StdioClientTransport } = from("@modelcontextprotocol/sdk/client/stdio.js");
  return new StdioClientTransport({ ...server, env: { ...process.env, ...server.env }, stderr: "inherit" });
}

const client = new Client({ name: "refused-call", version: "1" });
await client.connect(transport());
try {
  // Listing first is what makes the client know the output schema that it then checks results against.
  const { tools } = await client.listTools();
  const delivered = { declared: Boolean(tools.find(({ name }) => name === tool)?.outputSchema) };
  try {
    Object.assign(delivered, { result: await client.callTool({ name: tool, arguments: input }) });
  } catch (error) {
    Object.assign(delivered, { error: { code: error.code, message: error.message } });
  }
  console.log(JSON.stringify(delivered));
} finally {
  await client.close();
}
