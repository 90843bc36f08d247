/** Errors of calls, with what the service says about them. */

import { type Metadata, type StatusObject, status } from "@grpc/grpc-js";

import { BadRequest, ErrorInfo, RetryInfo } from "./generated/google/rpc/error_details.js";
import { Status } from "./generated/google/rpc/status.js";

/** One violation of a rule by a request. */
export interface Violation {
  /** Path of the field in the request message, e.g. `options.temperature`. */
  field: string;
  /** The rule and the value received. */
  description: string;
}

/** A call failed. */
export class ShaperouterError extends Error {
  /** The gRPC status code. */
  readonly code: status;
  /** A constant for programs, such as `QUEUE_FULL`; empty if the service gave none. */
  readonly reason: string;
  /** The rules that the request violates; empty for other errors. */
  readonly violations: readonly Violation[];
  /** Seconds after which the call may be sent again; undefined if that would not help. */
  readonly retryAfterSeconds: number | undefined;
  /** Id of the request, as in the service's logs; undefined if it never reached the service. */
  readonly requestId: string | undefined;

  constructor(error: StatusObject) {
    super(error.details, { cause: error });
    this.name = "ShaperouterError";
    this.code = error.code;
    const details = detailsOf(error.metadata);
    const retry = details.get("RetryInfo", RetryInfo)?.retryDelay;
    this.reason = details.get("ErrorInfo", ErrorInfo)?.reason ?? "";
    this.violations = details.get("BadRequest", BadRequest)?.fieldViolations ?? [];
    this.retryAfterSeconds = retry && Number(retry.seconds) + retry.nanos / 1e9;
    this.requestId = error.metadata.get("x-request-id")[0]?.toString();
  }
}

interface Decoder<T> {
  decode(bytes: Uint8Array): T;
}

/** Reads the details that the service sends beside a status. */
function detailsOf(metadata: Metadata): { get<T>(name: string, type: Decoder<T>): T | undefined } {
  const packed = metadata.get("grpc-status-details-bin")[0];
  const details = packed instanceof Buffer ? Status.decode(packed).details : [];
  return {
    get(name, type) {
      const found = details.find((each) => each.typeUrl.endsWith(`/google.rpc.${name}`));
      return found && type.decode(found.value);
    },
  };
}
