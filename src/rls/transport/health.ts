/**
 * `grpc.health.v1.Health`: whether the services of this server accept calls. Gateways and probes of
 * Kubernetes call Check. A Watch call is open until its client or its connection ends; their number
 * is bounded.
 */

import { GRPC_HEALTH_WATCHES_MAX } from '../../core/constants.ts';
import { formatValue } from '../../core/describe.ts';
import type { StreamCall, StreamMethod, UnaryCall, UnaryMethod } from './call.ts';
import { ProtobufReader, tagOf, WIRE_TYPE } from './protobuf.ts';
import { GRPC_STATUS, GrpcError } from './status.ts';

const { VARINT, BYTES } = WIRE_TYPE;

const SERVICE = tagOf(1, BYTES);
const STATUS = tagOf(1, VARINT);
/** Of the response to List, and of an entry of its map. */
const STATUSES = tagOf(1, BYTES);
const KEY = tagOf(1, BYTES);
const VALUE = tagOf(2, BYTES);

const SERVING_STATUS = { SERVING: 1, NOT_SERVING: 2, SERVICE_UNKNOWN: 3 } as const;

export class HealthService {
  readonly unary: Readonly<Record<string, UnaryMethod>>;
  readonly serverStreaming: Readonly<Record<string, StreamMethod>>;
  readonly #services: readonly string[];
  readonly #reader = new ProtobufReader();
  /** Those of known services; the status of another one never changes. */
  readonly #watches = new Set<StreamCall>();
  #watchCount = 0;
  #status: number = SERVING_STATUS.SERVING;

  /** @param services in ASCII, with at most 64 characters each; '' stands for the whole server */
  constructor(services: readonly string[]) {
    this.#services = services;
    this.unary = {
      '/grpc.health.v1.Health/Check': (message, call) => this.#check(message, call),
      '/grpc.health.v1.Health/List': (_message, call) => call.respond(this.#list()),
    };
    this.serverStreaming = {
      '/grpc.health.v1.Health/Watch': (message, call) => this.#watch(message, call),
    };
  }

  setServing(isServing: boolean): void {
    const status = isServing ? SERVING_STATUS.SERVING : SERVING_STATUS.NOT_SERVING;
    if (status === this.#status) return;
    this.#status = status;
    for (const call of this.#watches) call.send(statusMessage(status));
  }

  #check(message: Buffer, call: UnaryCall): void {
    const service = this.#serviceIn(message);
    if (!this.#services.includes(service)) {
      throw new GrpcError(GRPC_STATUS.NOT_FOUND, `unknown service ${formatValue(service)}`);
    }
    call.respond(statusMessage(this.#status));
  }

  #list(): Buffer {
    const statuses = this.#services.map((service) => {
      const entry = [field(KEY, Buffer.from(service)), field(VALUE, statusMessage(this.#status))];
      return field(STATUSES, Buffer.concat(entry));
    });
    return Buffer.concat(statuses);
  }

  #watch(message: Buffer, call: StreamCall): void {
    const isKnown = this.#services.includes(this.#serviceIn(message));
    if (this.#watchCount >= GRPC_HEALTH_WATCHES_MAX) {
      const reason = `at most ${GRPC_HEALTH_WATCHES_MAX} Watch calls can be open`;
      throw new GrpcError(GRPC_STATUS.RESOURCE_EXHAUSTED, reason);
    }
    this.#watchCount++;
    if (isKnown) this.#watches.add(call);
    call.onClose(() => {
      this.#watchCount--;
      this.#watches.delete(call);
    });
    call.send(statusMessage(isKnown ? this.#status : SERVING_STATUS.SERVICE_UNKNOWN));
  }

  #serviceIn(message: Buffer): string {
    const reader = this.#reader;
    let service = '';
    reader.start(message);
    while (!reader.isAtEnd) {
      const tag = reader.tag();
      if (tag === SERVICE) service = reader.text();
      else reader.skipField(tag);
    }
    reader.stop();
    return service;
  }
}

function statusMessage(status: number): Buffer {
  return Buffer.from([STATUS, status]);
}

/** A field of at most 127 bytes. */
function field(tag: number, value: Buffer): Buffer {
  return Buffer.concat([Buffer.from([tag, value.length]), value]);
}
