// Calls one tool with a TypeScript client and prints what it delivered, as one JSON object.
// node refused_call.mjs PACKAGES '{"server": {...an entry of .mcp.json...}, "client": "sdk", "era": "legacy", "tool": "...", "arguments": {...}}'
import { open } from "./typescript_client.mjs";

const [packages, text] = process.argv.slice(2);
const job = JSON.parse(text);
const { client, connect, call } = open(packages, job, "refused-call");
await connect();
try {
  // Listing first is what makes the client know the output schema that it then checks results against.
  const { tools } = await client.listTools();
  const delivered = { declared: Boolean(tools.find(({ name }) => name === job.tool)?.outputSchema) };
  try {
    Object.assign(delivered, { result: await call(job.tool, job.arguments) });
  } catch (error) {
    Object.assign(delivered, { error: { code: error.code, message: error.message } });
  }
  console.log(JSON.stringify(delivered));
} finally {
  await client.close();
}
