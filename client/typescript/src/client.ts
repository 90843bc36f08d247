/** The client: generations as promises and as streams, over one connection. */

import {
  type ClientOptions,
  type ClientUnaryCall,
  type ServiceError,
  ChannelCredentials,
  Metadata,
  connectivityState,
  credentials,
  status,
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
import {
  type ListModelsResponse,
  type Model,
  ListModelsRequest,
  ModelServiceClient,
} from "./generated/shaperouter/v1/model.js";
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

/** What every call can be given. */
export interface CallOptions {
  /** Seconds until the call ends with DEADLINE_EXCEEDED. Default: no deadline. */
  timeout?: number;
  /** Ends the call when it is aborted. */
  signal?: AbortSignal;
}

/** What a call needs besides its prompt. */
export interface GenerateOptions extends Partial<GenerationOptions>, CallOptions {
  /** Name of the model. Default: the only one that generates from text. */
  model?: string;
}

// Maximum bytes of an answer, as in the Python client. gRPC's default is 4 MiB.
const MAX_RESPONSE_BYTES = 64 * 2 ** 20;

// Milliseconds until a connection with calls is pinged, and within which the answer must come.
// Without pings, a call without a deadline would wait forever for a host that has vanished. The
// service disconnects clients that ping more often than every 5 s.
const PING_INTERVAL = 30_000;
const PING_TIMEOUT = 20_000;

// The channel sends these calls again after any UNAVAILABLE that comes before the answer's header,
// up to three times. Such a call may run twice, so changes of the models are not among them: a
// change may have lost only its answer.
const RETRIES = {
  methodConfig: [
    {
      name: [
        { service: "shaperouter.v1.GenerationService" },
        { service: "shaperouter.v1.GraphService", method: "ListGraphs" },
        { service: "shaperouter.v1.InferenceService", method: "Infer" },
        { service: "shaperouter.v1.ModelService", method: "ListModels" },
        { service: "shaperouter.v1.ModelService", method: "GetModel" },
        { service: "shaperouter.v1.TranscriptionService", method: "Transcribe" },
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
      "grpc.max_receive_message_length": MAX_RESPONSE_BYTES,
      "grpc.keepalive_time_ms": PING_INTERVAL,
      "grpc.keepalive_timeout_ms": PING_TIMEOUT,
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
    return this.#answer(options, (callback) =>
      this.stubs.generation.generate(request, this.metadata(), deadlineOf(options), callback),
    );
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
    this.#checkOpen();
    const { generation } = this.stubs;
    const call = generation.generateStream(request, this.metadata(), deadlineOf(options));
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
  async models(options: CallOptions = {}): Promise<Model[]> {
    const request = ListModelsRequest.create();
    const { models } = await this.#answer<ListModelsResponse>(options, (callback) =>
      this.stubs.models.listModels(request, this.metadata(), deadlineOf(options), callback),
    );
    return models;
  }

  /** The metadata that calls of the stubs need. */
  metadata(): Metadata {
    const metadata = new Metadata();
    if (this.#token !== undefined) metadata.set("authorization", `Bearer ${this.#token}`);
    return metadata;
  }

  /** Closes the connection. Later calls fail. */
  close(): void {
    this.stubs.generation.close();
  }

  /** Makes a call that has one answer. */
  #answer<T>(
    { signal }: CallOptions,
    start: (callback: (error: ServiceError | null, value: T) => void) => ClientUnaryCall,
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#checkOpen();
      const call = start((error, value) => {
        if (error === null) resolve(value);
        else reject(new ShaperouterError(error));
      });
      call.on("status", onAbort(signal, () => call.cancel()));
    });
  }

  /** Fails as a call does, because gRPC would throw a plain error. */
  #checkOpen(): void {
    const state = this.stubs.generation.getChannel().getConnectivityState(false);
    if (state === connectivityState.SHUTDOWN) {
      const details = "the client is closed";
      throw new ShaperouterError({ code: status.CANCELLED, details, metadata: new Metadata() });
    }
  }
}

function requestOf(prompt: string | readonly number[], options: GenerateOptions) {
  const { model = "", timeout: _timeout, signal: _signal, ...generation } = options;
  const input = typeof prompt === "string" ? { text: prompt } : { tokenIds: { ids: [...prompt] } };
  return { model, ...input, options: GenerationOptions.create(generation) };
}

function deadlineOf({ timeout }: CallOptions): { deadline?: number } {
  return timeout === undefined ? {} : { deadline: Date.now() + 1000 * timeout };
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
