// Runs on the browser's audio thread: sends the samples of the first channel to the page.

// Samples of a message: about a tenth of a second, so that the page has ten a second.
const BLOCK = 4096;

class Samples extends AudioWorkletProcessor {
  constructor() {
    super();
    this.block = new Float32Array(BLOCK);
    this.filled = 0;
  }

  process([[channel]]) {
    for (const sample of channel ?? []) {
      this.block[this.filled] = sample;
      this.filled += 1;
      if (this.filled === BLOCK) {
        this.port.postMessage(this.block.slice());
        this.filled = 0;
      }
    }
    return true;
  }
}

registerProcessor("samples", Samples);
