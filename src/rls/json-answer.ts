/** Writes an answer of the rate limit service as proto3 JSON, which omits zeros. */

import type { JsonObject } from '../core/json.ts';
import type { AnswerWriter } from './call.ts';
import type { ResponseLimit } from './wire/response.ts';
import { unitName } from './wire/units.ts';

const CODE_NAMES = ['UNKNOWN', 'OK', 'OVER_LIMIT'];

export class JsonAnswerWriter implements AnswerWriter {
  #statuses: JsonObject[] = [];
  #headers: JsonObject[] = [];
  #rawBody: string | undefined;
  #metadata: JsonObject | undefined;

  begin(): void {
    this.#statuses = [];
    this.#headers = [];
    this.#rawBody = undefined;
    this.#metadata = undefined;
  }

  addStatus(
    code: number,
    limit: ResponseLimit | undefined,
    remaining: number,
    resetSeconds: number | undefined,
  ): void {
    this.#statuses.push({
      code: CODE_NAMES[code],
      ...(limit && { currentLimit: limitFields(limit) }),
      ...(remaining > 0 && { limitRemaining: Math.min(remaining, 0xffff_ffff) }),
      ...(resetSeconds !== undefined && { durationUntilReset: `${resetSeconds}s` }),
    });
  }

  addResponseHeader(key: string, value: string): void {
    this.#headers.push({ key, value });
  }

  setRawBody(text: string): void {
    this.#rawBody = Buffer.from(text).toString('base64');
  }

  setDynamicMetadata(value: JsonObject): void {
    this.#metadata = value;
  }

  finish(overallCode: number): Buffer {
    const answer = {
      overallCode: CODE_NAMES[overallCode],
      statuses: this.#statuses,
      ...(this.#headers.length > 0 && { responseHeadersToAdd: this.#headers }),
      ...(this.#rawBody !== undefined && { rawBody: this.#rawBody }),
      ...(this.#metadata && { dynamicMetadata: this.#metadata }),
    };
    return Buffer.from(JSON.stringify(answer));
  }
}

function limitFields({ requestsPerUnit, unit, name }: ResponseLimit): JsonObject {
  return {
    ...(requestsPerUnit > 0 && { requestsPerUnit }),
    unit: unitName(unit) ?? unit,
    ...(name !== undefined && { name }),
  };
}
