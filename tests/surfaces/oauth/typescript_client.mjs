// The official TypeScript client: it prints where a person signs in, and reads commands as lines of
// JSON: {"code": …} goes on after the sign-in, {"call": …} calls a tool, {"expire": true} makes its
// access token invalid. Arguments: the folder of the SDK, the URL of the server, the redirect URI,
// and the URL of a client ID metadata document if there is one.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [sdk, server, redirectUrl, clientMetadataUrl] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${sdk}/dist/esm/client/${name}.js`));
const { Client } = await load("index");
const { StreamableHTTPClientTransport } = await load("streamableHttp");

const kept = {};
const print = (value) => console.log(JSON.stringify(value));
const authProvider = {
  redirectUrl,
  clientMetadataUrl,
  clientMetadata: { client_name: "TypeScript", redirect_uris: [redirectUrl] },
  state: () => "typescript",
  clientInformation: () => kept.client,
  saveClientInformation: (client) => { kept.client = client; },
  tokens: () => kept.tokens,
  saveTokens: (tokens) => { kept.tokens = tokens; },
  redirectToAuthorization: (url) => { kept.asked = url.href; },
  saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
  codeVerifier: () => kept.verifier,
  invalidateCredentials: (scope) => { if (scope === "tokens") kept.tokens = undefined; },
};
let transport, client;

async function connect() {
  client = new Client({ name: "typescript", version: "1" });
  transport = new StreamableHTTPClientTransport(new URL(server), { authProvider });
  await client.connect(transport);
}

const commands = {
  async connect() { await connect(); return {}; },
  async code(code) { await transport.finishAuth(code); await connect(); return {}; },
  async call(name) { return (await client.callTool({ name, arguments: {} })).structuredContent; },
  async expire() { kept.tokens = { ...kept.tokens, access_token: "po_expired" }; return {}; },
};

for await (const line of createInterface({ input: process.stdin })) {
  const [name, value] = Object.entries(JSON.parse(line))[0];
  kept.asked = undefined;
  try {
    print({ result: await commands[name](value), client: kept.client?.client_id });
  } catch (error) {
    print({ error: error.constructor.name, words: error.message, asked: kept.asked });
  }
}
