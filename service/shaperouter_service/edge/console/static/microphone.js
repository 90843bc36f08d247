// A recording from the microphone, as a WAV file.

import { h, say } from "./dom.js";
import { seconds } from "./format.js";

// Seconds after which a recording ends by itself: its file stays below 25 MB.
const MOST_SECONDS = 240;

/** A button that records. */
export class Microphone {
  /** Has a function called with the file of each recording. */
  constructor(recorded) {
    this.recorded = recorded;
    this.button = h("button", { type: "button", id: "speech-record", onclick: () => this.toggle() }, "Record");
    this.state = h("span.small", { role: "status" });
    this.element = h("p.buttons", {}, this.button, this.state);
    // Browsers hide microphones from pages that came over a network without TLS.
    if (!navigator.mediaDevices) {
      this.button.disabled = true;
      say(this.state, "The browser lends the microphone only to pages of this machine or of TLS.");
    }
  }

  async toggle() {
    if (this.end) return this.end();
    try {
      return await this.record();
    } catch (error) {
      return say(this.state, `The microphone cannot be used: ${error.message}`);
    }
  }

  async record() {
    this.button.disabled = true;
    let stream;
    let context;
    try {
      stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
      context = new AudioContext();
      await context.audioWorklet.addModule("console/samples-worklet.js");
    } catch (error) {
      close(stream, context);
      throw error;
    } finally {
      this.button.disabled = false;
    }
    const blocks = [];
    let length = 0;
    const source = context.createMediaStreamSource(stream);
    const samples = new AudioWorkletNode(context, "samples", { numberOfOutputs: 0 });
    samples.port.onmessage = ({ data }) => {
      blocks.push(data);
      length += data.length;
      say(this.state, `Recording: ${(length / context.sampleRate).toFixed(1)} s`);
      // Who leaves the form leaves the microphone.
      if (length > MOST_SECONDS * context.sampleRate || !this.element.isConnected) this.end?.();
    };
    source.connect(samples);
    say(this.button, "Stop recording");
    this.end = () => {
      this.end = null;
      samples.port.onmessage = null;
      close(stream, context);
      say(this.button, "Record");
      say(this.state, `Recorded ${seconds(length / context.sampleRate)}.`);
      this.recorded(new File([wav(blocks, length, context.sampleRate)], "microphone.wav", { type: "audio/wav" }));
    };
  }
}

function close(stream, context) {
  for (const track of stream?.getTracks() ?? []) track.stop();
  context?.close();
}

/** A WAV file of 16 bits and one channel. */
function wav(blocks, length, rate) {
  const view = new DataView(new ArrayBuffer(44 + 2 * length));
  const text = (offset, letters) => [...letters].forEach((letter, index) => view.setUint8(offset + index, letter.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, 36 + 2 * length, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, 2 * rate, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, 2 * length, true);
  let offset = 44;
  for (const block of blocks) {
    for (const sample of block) {
      view.setInt16(offset, Math.round(32767 * Math.max(-1, Math.min(1, sample))), true);
      offset += 2;
    }
  }
  return view.buffer;
}
