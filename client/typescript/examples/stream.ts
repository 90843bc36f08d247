/** Streams a generation: `npm run example -- ADDRESS PROMPT`. */

import { Client, ShaperouterError } from "../src/index.js";

const [address, prompt = "TensorFlow is"] = process.argv.slice(2);
const client = new Client(address);
try {
  for await (const event of client.events(prompt, { maxNewTokens: 40, timeout: 60 })) {
    if (event.$case === "stall") console.error("waiting for", event.value.signature);
    if (event.$case === "delta") process.stdout.write(event.value.text);
    if (event.$case === "completion") {
      const { usage, seed } = event.value.completion ?? {};
      console.log(`\n${usage?.generatedTokens} tokens, seed ${seed}`);
    }
  }
} catch (error) {
  if (!(error instanceof ShaperouterError)) throw error;
  console.error(error.message);
  for (const { field, description } of error.violations) console.error(`  ${field}: ${description}`);
  process.exitCode = 1;
} finally {
  client.close();
}
