/** Calls a function through the stubs, as in the README: `node dist/examples/infer.js ADDRESS`. */

import { Client, ShaperouterError, inference } from "../src/index.js";

const client = new Client(process.argv[2]);

const x = new Float32Array(60).fill(1);
const request = inference.InferRequest.create({
  model: "double",
  inputs: [
    {
      name: "x",
      dtype: inference.DataType.DATA_TYPE_FP32,
      shape: [3n, 20n],
      content: Buffer.from(x.buffer),
    },
  ],
});
const response = await new Promise<inference.InferResponse>((resolve, reject) => {
  client.stubs.inference.infer(request, client.metadata(), (error, answer) => {
    if (error === null) resolve(answer);
    else reject(new ShaperouterError(error));
  });
});
for (const { name, shape, content } of response.outputs) {
  // A Float32Array must begin at a multiple of 4 bytes, so the bytes are copied.
  console.log(name, shape, new Float32Array(new Uint8Array(content).buffer));
}

client.close();
