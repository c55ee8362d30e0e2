/** A client of the rate limit service, of grpc-js, with short forms of requests and answers. */

import {
  type ChannelCredentials,
  type Client,
  credentials,
  type ServiceError,
  status,
} from '@grpc/grpc-js';
import { UNIT_NUMBER, type UnitName, unitName } from '../../../src/rls/wire/units.ts';
import { clientClass, RATE_LIMIT_SERVICE, SHOULD_RATE_LIMIT } from './definitions.ts';

/** `a=1,b=2` for its entries, and more where the descriptor has more. */
export type DescriptorForm =
  | string
  | {
      of: string;
      hits?: number | string;
      isRefund?: boolean;
      limit?: [requests: number, unit: UnitName | number, multiplier?: number];
    };

export interface RlsAnswer {
  /** `OK` or `OVER_LIMIT`. */
  overall: string;
  /**
   * `OK` where there is no limit, `OK 4/5 HOUR`, and with the name of the limit `OK 4/5 HOUR name`.
   * `OK 4` has no `current_limit`.
   */
  statuses: string[];
  /** Seconds until the window of each status ends; undefined without `duration_until_reset`. */
  resets: (number | undefined)[];
  headers: Record<string, string>;
  body: string;
  metadata: unknown;
}

interface Wrapped<T> {
  value: T;
}

interface WireAnswer {
  overall_code: number;
  statuses: {
    code: number;
    current_limit: {
      requests_per_unit: number;
      unit: number;
      name: string;
      unit_multiplier: Wrapped<number> | null;
    } | null;
    limit_remaining: number;
    duration_until_reset: { seconds: string; nanos: number } | null;
  }[];
  response_headers_to_add: { key: string; value: string }[];
  raw_body: Uint8Array;
  dynamic_metadata: { fields: Record<string, WireValue> } | null;
}

interface WireValue {
  kind: 'nullValue' | 'numberValue' | 'stringValue' | 'boolValue' | 'structValue' | 'listValue';
  numberValue?: number;
  stringValue?: string;
  boolValue?: boolean;
  structValue?: { fields: Record<string, WireValue> };
  listValue?: { values: WireValue[] };
}

const CODES = ['UNKNOWN', 'OK', 'OVER_LIMIT'];

export class RlsClient {
  readonly #client: Client;

  /** @param target as grpc-js has it: `127.0.0.1:8081`, `unix:/run/rls.sock` */
  constructor(target: string, channel: ChannelCredentials = credentials.createInsecure()) {
    const Service = clientClass(RATE_LIMIT_SERVICE);
    // Otherwise the clients of a process share one connection.
    this.#client = new Service(target, channel, { 'grpc.use_local_subchannel_pool': 1 });
  }

  /** Rejects with a ServiceError. */
  async call(domain: string, descriptors: readonly DescriptorForm[], hits = 0): Promise<RlsAnswer> {
    return answerOf((await this.send(requestOf(domain, descriptors, hits))) as WireAnswer);
  }

  /**
   * @returns the overall code and each status as texts, or the name of the status of gRPC and its
   *   message
   */
  async ask(domain: string, descriptors: readonly DescriptorForm[], hits = 0): Promise<string[]> {
    try {
      const { overall, statuses } = await this.call(domain, descriptors, hits);
      return [overall, ...statuses];
    } catch (error) {
      const { code, details } = error as ServiceError;
      return [status[code], details];
    }
  }

  /** Sends a message in the form of the proto file. */
  send(request: object): Promise<object> {
    const { path, requestSerialize, responseDeserialize } = SHOULD_RATE_LIMIT;
    return new Promise((resolve, reject) => {
      this.#client.makeUnaryRequest(
        path,
        requestSerialize,
        responseDeserialize,
        request,
        (error, answer) => (error === null ? resolve(answer!) : reject(error)),
      );
    });
  }

  close(): void {
    this.#client.close();
  }
}

/** A message in the form of the proto file. */
export function requestOf(
  domain: string,
  descriptors: readonly DescriptorForm[],
  hits = 0,
): object {
  return { domain, descriptors: descriptors.map(descriptorOf), hits_addend: hits };
}

function descriptorOf(form: DescriptorForm): object {
  if (typeof form === 'string') return { entries: entriesOf(form) };
  const { of, hits, isRefund = false, limit } = form;
  return {
    entries: entriesOf(of),
    ...(hits !== undefined && { hits_addend: { value: hits } }),
    ...(limit !== undefined && { limit: ownLimit(...limit) }),
    is_negative_hits: isRefund,
  };
}

function ownLimit(requests: number, unit: UnitName | number, multiplier?: number): object {
  return {
    requests_per_unit: requests,
    unit: typeof unit === 'number' ? unit : UNIT_NUMBER[unit],
    ...(multiplier !== undefined && { unit_multiplier: { value: multiplier } }),
  };
}

/** @param text `a=1,b=2`; a key without `=` has the value '' */
function entriesOf(text: string): { key: string; value: string }[] {
  if (text === '') return [];
  return text.split(',').map((entry) => {
    const [key, ...rest] = entry.split('=');
    return { key, value: rest.join('=') };
  });
}

function answerOf(answer: WireAnswer): RlsAnswer {
  const { overall_code, statuses, response_headers_to_add, raw_body, dynamic_metadata } = answer;
  return {
    overall: CODES[overall_code],
    statuses: statuses.map(statusText),
    resets: statuses.map(({ duration_until_reset: duration }) => {
      return duration === null ? undefined : Number(duration.seconds) + duration.nanos / 1e9;
    }),
    headers: Object.fromEntries(response_headers_to_add.map(({ key, value }) => [key, value])),
    body: Buffer.from(raw_body).toString(),
    metadata: dynamic_metadata === null ? undefined : objectOf(dynamic_metadata),
  };
}

function statusText({ code, current_limit: limit, limit_remaining }: WireAnswer['statuses'][0]) {
  const words = [CODES[code]];
  if (limit === null) {
    if (limit_remaining > 0) words.push(String(limit_remaining));
    return words.join(' ');
  }
  const times = limit.unit_multiplier === null ? '' : `${limit.unit_multiplier.value} `;
  words.push(`${limit_remaining}/${limit.requests_per_unit} ${times}${unitName(limit.unit)}`);
  if (limit.name !== '') words.push(limit.name);
  return words.join(' ');
}

function objectOf({ fields }: { fields: Record<string, WireValue> }): unknown {
  return Object.fromEntries(Object.entries(fields).map(([key, value]) => [key, plainValue(value)]));
}

function plainValue(value: WireValue): unknown {
  switch (value.kind) {
    case 'structValue':
      return objectOf(value.structValue!);
    case 'listValue':
      return value.listValue!.values.map(plainValue);
    case 'nullValue':
      return null;
    default:
      return value[value.kind];
  }
}
