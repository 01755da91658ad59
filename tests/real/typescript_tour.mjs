// Takes a TypeScript client through all that a host serves, and prints what it saw as one JSON object.
// node typescript_tour.mjs PACKAGES '{"server": {...}, "client": "sdk"|"client", "era": "legacy"|"modern"}'
import { open } from "./typescript_client.mjs";

const [packages, text] = process.argv.slice(2);
const job = JSON.parse(text);
const modern = job.era === "modern";
const capabilities = { elicitation: { form: {} }, sampling: {}, roots: {} };
const { client, connect, call, answer, hear } = open(packages, job, "typescript-tour", capabilities);

const questions = [];
const known = { name: "Ann", username: "ann", email: "ann@example.org" };
answer("elicitation/create", "ElicitRequestSchema", ({ params }) => {
  questions.push(params.message);
  const fields = Object.keys(params.requestedSchema.properties);
  return { action: "accept", content: Object.fromEntries(fields.map((field) => [field, known[field]])) };
});
answer("sampling/createMessage", "CreateMessageRequestSchema", () => ({
  role: "assistant",
  model: "none",
  content: { type: "text", text: "Paris" },
}));
answer("roots/list", "ListRootsRequestSchema", () => ({ roots: [{ uri: "file:///somewhere" }] }));

const heard = [];
let news = () => {};
for (const [method, schema] of [
  ["tools/list_changed", "ToolListChangedNotificationSchema"],
  ["prompts/list_changed", "PromptListChangedNotificationSchema"],
  ["resources/updated", "ResourceUpdatedNotificationSchema"],
]) {
  hear(`notifications/${method}`, schema, ({ params }) => {
    heard.push(params?.uri ? `${method} ${params.uri}` : method);
    news();
  });
}

// What a trigger brings; the wait ends by itself, and the test sees what is missing.
async function triggered(what) {
  const told = new Promise((resolve) => {
    news = resolve;
    setTimeout(resolve, 10_000).unref();
  });
  await call(`test_trigger_${what}_change`);
  await told;
}

const said = ({ content }) => content.map((block) => block.text ?? block.type).join("\n");

async function failed(promise) {
  try {
    await promise;
    return null;
  } catch (error) {
    return { code: error.code, message: error.message };
  }
}

await connect();
const seen = { questions, heard };
try {
  seen.tools = (await client.listTools()).tools.map((tool) => tool.name);
  seen.text = said(await call("test_simple_text"));
  seen.image = (await call("test_image_content")).content[0].mimeType;
  seen.structured = (await call("test_structured")).structuredContent;
  const refused = await call("test_error_handling");
  seen.refused = { isError: refused.isError, text: said(refused), structured: "structuredContent" in refused };

  seen.progress = [];
  await call("test_tool_with_progress", {}, { onprogress: ({ progress }) => seen.progress.push(progress) });

  const stop = new AbortController();
  setTimeout(() => stop.abort("enough"), 300);
  seen.cancelled = await failed(call("slow_compute", { seconds: 60 }, { signal: stop.signal }));
  seen.afterwards = said(await call("test_simple_text"));

  seen.wanted = said(await call("test_input_required_result_elicitation"));
  seen.elicited = said(await call("test_elicitation", { message: "Who are you?" }));
  seen.sampled = said(await call("test_sampling", { prompt: "What is the capital of France?" }));
  seen.roots = said(await call("test_input_required_result_list_roots"));

  const uri = "test://watched-resource";
  const wanted = { toolsListChanged: true, promptsListChanged: true, resourceSubscriptions: [uri] };
  const subscription = modern ? await client.listen(wanted) : await client.subscribeResource({ uri });
  for (const what of ["tool", "prompt", "resource"]) await triggered(what);
  await (modern ? subscription.close() : client.unsubscribeResource({ uri }));

  seen.resources = (await client.listResources()).resources.map((one) => one.uri);
  seen.templates = (await client.listResourceTemplates()).resourceTemplates.map((one) => one.uriTemplate);
  seen.read = (await client.readResource({ uri: "test://template/7/data" })).contents[0].text;
  seen.missing = await failed(client.readResource({ uri: "test://nobody" }));
  seen.prompts = (await client.listPrompts()).prompts.map((one) => one.name);
  const name = "test_prompt_with_arguments";
  const prompt = await client.getPrompt({ name, arguments: { arg1: "a", arg2: "b" } });
  seen.prompt = prompt.messages[0].content.text;
  const argument = { name: "arg1", value: "par" };
  seen.completed = (await client.complete({ ref: { type: "ref/prompt", name }, argument })).completion.values;
} catch (error) {
  seen.error = `${error.stack}`;
} finally {
  await client.close();
}
console.log(JSON.stringify(seen));
