/** The client: generations as promises and as streams, over one connection. */

import {
  type CallOptions,
  type ClientOptions,
  type ServiceError,
  ChannelCredentials,
  Metadata,
  credentials,
} from "@grpc/grpc-js";

import { ShaperouterError } from "./errors.js";
import {
  type Delta,
  type GenerateResponse,
  type GenerateStreamResponse,
  GenerateRequest,
  GenerateStreamRequest,
  GenerationOptions,
  GenerationServiceClient,
} from "./generated/shaperouter/v1/generation.js";
import { GraphServiceClient } from "./generated/shaperouter/v1/graph.js";
import { InferenceServiceClient } from "./generated/shaperouter/v1/inference.js";
import { type Model, ListModelsRequest, ModelServiceClient } from "./generated/shaperouter/v1/model.js";
import { TranscriptionServiceClient } from "./generated/shaperouter/v1/transcription.js";

/** How to reach a service. */
export interface ConnectOptions {
  /** PEM of the authorities that sign the service's certificate; `true` trusts the public ones. */
  tls?: Buffer | true;
  /** The client's token. It is never sent without TLS, except to this machine. */
  token?: string;
  /** Further options of the channel. */
  channel?: Partial<ClientOptions>;
}

/** What a call needs besides its prompt. */
export interface GenerateOptions extends Partial<GenerationOptions> {
  /** Name of the model. Default: the only one that generates from text. */
  model?: string;
  /** Seconds until the call ends with DEADLINE_EXCEEDED. Default: no deadline. */
  timeout?: number;
  /** Ends the call when it is aborted. */
  signal?: AbortSignal;
}

// The services resend a call by themselves only if it never reached a worker. A change of the models
// is not sent again: it may have lost only its answer.
const RETRIES = {
  methodConfig: [
    {
      name: [
        { service: "shaperouter.v1.GenerationService" },
        { service: "shaperouter.v1.ModelService", method: "ListModels" },
        { service: "shaperouter.v1.ModelService", method: "GetModel" },
      ],
      retryPolicy: {
        maxAttempts: 4,
        initialBackoff: "0.2s",
        maxBackoff: "2s",
        backoffMultiplier: 2,
        retryableStatusCodes: ["UNAVAILABLE"],
      },
    },
  ],
};

/** The stubs of all services, for calls that `Client` has no method for. */
export interface Stubs {
  readonly generation: GenerationServiceClient;
  readonly graphs: GraphServiceClient;
  readonly inference: InferenceServiceClient;
  readonly models: ModelServiceClient;
  readonly transcription: TranscriptionServiceClient;
}

/** A connection to a service. */
export class Client {
  /** The generated stubs. Pass them `metadata()` where a token is needed. */
  readonly stubs: Stubs;
  readonly #token: string | undefined;

  /**
   * Connects when the first call is made.
   *
   * @param address `HOST:PORT` or `unix:/path/to/socket`.
   * @throws {Error} A token would be sent across a network in plain text.
   */
  constructor(address = "127.0.0.1:50051", options: ConnectOptions = {}) {
    if (options.token !== undefined && options.tls === undefined && !isLocal(address)) {
      throw new Error(`token: needs tls, because ${address} is not on this machine`);
    }
    const secured = credentialsOf(options.tls);
    const channel = {
      "grpc.service_config": JSON.stringify(RETRIES),
      // An http_proxy variable is meant for outside hosts and must not affect calls to this machine.
      ...(isLocal(address) && { "grpc.enable_http_proxy": 0 }),
      ...options.channel,
    };
    const generation = new GenerationServiceClient(address, secured, channel);
    // All stubs share one connection.
    const shared = { ...channel, channelOverride: generation.getChannel() };
    this.stubs = {
      generation,
      graphs: new GraphServiceClient(address, secured, shared),
      inference: new InferenceServiceClient(address, secured, shared),
      models: new ModelServiceClient(address, secured, shared),
      transcription: new TranscriptionServiceClient(address, secured, shared),
    };
    this.#token = options.token;
  }

  /**
   * Generates from a prompt and answers once, at the end.
   *
   * @param prompt A text, or token ids.
   * @throws {ShaperouterError} The call failed.
   */
  generate(prompt: string | readonly number[], options: GenerateOptions = {}): Promise<GenerateResponse> {
    const request = GenerateRequest.create(requestOf(prompt, options));
    return new Promise((resolve, reject) => {
      const call = this.stubs.generation.generate(
        request,
        this.metadata(),
        callOptions(options),
        settled(resolve, reject),
      );
      call.on("status", onAbort(options.signal, () => call.cancel()));
    });
  }

  /**
   * Generates from a prompt and yields events as they come: stalls, deltas, then one completion.
   * Leaving the loop early cancels the call and frees its slot.
   *
   * @param prompt A text, or token ids.
   * @throws {ShaperouterError} The call failed.
   */
  async *events(
    prompt: string | readonly number[],
    options: GenerateOptions = {},
  ): AsyncGenerator<NonNullable<GenerateStreamResponse["event"]>, void, undefined> {
    const request = GenerateStreamRequest.create(requestOf(prompt, options));
    const call = this.stubs.generation.generateStream(request, this.metadata(), callOptions(options));
    const forget = onAbort(options.signal, () => call.cancel());
    try {
      for await (const response of call as AsyncIterable<GenerateStreamResponse>) {
        // A later version of the service may send events that this one does not know.
        if (response.event !== undefined) yield response.event;
      }
    } catch (error) {
      throw new ShaperouterError(error as ServiceError);
    } finally {
      forget();
      call.cancel();
    }
  }

  /** Generates from a prompt and yields its text as it comes; see `events`. */
  async *stream(
    prompt: string | readonly number[],
    options: GenerateOptions = {},
  ): AsyncGenerator<Delta, void, undefined> {
    for await (const event of this.events(prompt, options)) {
      if (event.$case === "delta") yield event.value;
    }
  }

  /**
   * Lists the models of the service.
   *
   * @throws {ShaperouterError} The call failed.
   */
  models(): Promise<Model[]> {
    return new Promise((resolve, reject) => {
      const answer = settled<{ models: Model[] }>(({ models }) => resolve(models), reject);
      this.stubs.models.listModels(ListModelsRequest.create(), this.metadata(), answer);
    });
  }

  /** The metadata that calls of the stubs need. */
  metadata(): Metadata {
    const metadata = new Metadata();
    if (this.#token !== undefined) metadata.set("authorization", `Bearer ${this.#token}`);
    return metadata;
  }

  /** Closes the connection. */
  close(): void {
    this.stubs.generation.close();
  }
}

function requestOf(prompt: string | readonly number[], options: GenerateOptions) {
  const { model = "", timeout: _timeout, signal: _signal, ...generation } = options;
  const input = typeof prompt === "string" ? { text: prompt } : { tokenIds: { ids: [...prompt] } };
  return { model, ...input, options: GenerationOptions.create(generation) };
}

function callOptions({ timeout }: GenerateOptions): CallOptions {
  return timeout === undefined ? {} : { deadline: Date.now() + 1000 * timeout };
}

function settled<T>(resolve: (value: T) => void, reject: (error: ShaperouterError) => void) {
  return (error: ServiceError | null, value: T): void => {
    if (error === null) resolve(value);
    else reject(new ShaperouterError(error));
  };
}

/** Cancels a call when a signal is aborted, until the function that it returns is called. */
function onAbort(signal: AbortSignal | undefined, cancel: () => void): () => void {
  if (signal?.aborted) cancel();
  else signal?.addEventListener("abort", cancel, { once: true });
  return () => signal?.removeEventListener("abort", cancel);
}

function credentialsOf(tls: Buffer | true | undefined): ChannelCredentials {
  if (tls === undefined) return credentials.createInsecure();
  return tls === true ? credentials.createSsl() : credentials.createSsl(tls);
}

function isLocal(address: string): boolean {
  // To the end: 127.0.0.1.example.com may be anywhere.
  return /^(unix:|(localhost|127(\.\d{1,3}){3}|\[::1\]):\d+$)/.test(address);
}
