/**
 * The log at level debug: settings, API operations, publications, and error responses reported by
 * acceptors. Identifiers and keys are never logged; a key that a client sent in another field or in
 * a path is replaced.
 */

import type { OperationRequest, OperationResult } from '../api/operations/messages.ts';
import type { LoadedSettings } from '../config/load.ts';
import { annotations, environmentName, SETTING_NAMES } from '../config/schema.ts';
import { statusOf } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { Publication } from '../registry/publication.ts';
import type { DebugRecord } from '../server/messages.ts';
import type { Clock } from '../shared-memory/clock.ts';

/** A key made by weir, or the beginning of one. */
const KEY_PATTERN = /weir(?:_|%5f)[\w%-]{8,}/gi;
const REDACTED_KEY = '[key]';

export class DebugLog {
  readonly #log: Log;
  readonly #clock: Clock;
  /** Matches the configured root key in a message or a path. */
  readonly #rootKeyPattern: RegExp | undefined;

  constructor(log: Log, clock: Clock, rootKey: string | undefined) {
    this.#log = log;
    this.#clock = clock;
    this.#rootKeyPattern = rootKey === undefined ? undefined : keyPattern(rootKey);
  }

  /** Logs each setting with its source. */
  logSettings(settings: LoadedSettings): void {
    for (const name of SETTING_NAMES) {
      if (settings[name] === undefined) continue;
      const value = annotations(name).secret ? '[secret]' : settings[name];
      const source = settings.sources.get(name);
      this.#log.debug({ setting: environmentName(name), value, source }, 'setting');
    }
  }

  /** Runs an operation, and logs its result. */
  async runOperation(
    request: OperationRequest,
    run: (request: OperationRequest) => Promise<OperationResult>,
  ): Promise<OperationResult> {
    const { operation, keyId } = request;
    const startedMs = this.#clock.monotonicMs();
    const result = await run(request);
    const code = 'body' in result ? undefined : (result.code ?? 'INTERNAL_SERVER_ERROR');
    const status = code === undefined ? 200 : statusOf(code);
    const ms = roundToMicroseconds(this.#clock.monotonicMs() - startedMs);
    this.#log.debug({ operation, keyId, status, code, ms }, 'operation');
    return result;
  }

  /** @returns what to call when the publication is active on all acceptors */
  startPublication(version: number, publication: Publication): () => void {
    const startedMs = this.#clock.monotonicMs();
    return () => this.#logActivation(version, publication, this.#clock.monotonicMs() - startedMs);
  }

  /** Logs a record that an acceptor has sent. */
  logAcceptorRecord(acceptor: number, { text, fields }: DebugRecord): void {
    const redacted = Object.entries(fields).map(([name, value]) => {
      return [name, typeof value === 'string' ? this.redactKeys(value) : value];
    });
    this.#log.debug({ acceptor, ...Object.fromEntries(redacted) }, text);
  }

  #logActivation(version: number, publication: Publication, ms: number): void {
    const {
      deletedNamespaces = [],
      registeredNamespaces = [],
      rejectedNamespaces = [],
      keys,
      policies,
      exact,
      trie,
    } = publication;
    for (const { id, name } of registeredNamespaces) {
      this.#log.debug({ namespace: this.redactKeys(name), id }, 'a namespace was created');
    }
    for (const { name } of deletedNamespaces) {
      this.#log.debug({ namespace: this.redactKeys(name) }, 'a namespace was deleted');
    }
    const changed = {
      namespaces: registeredNamespaces.length,
      rejectedNamespaces: rejectedNamespaces.length,
      keysAdded: keys?.added.length ?? 0,
      keysRemoved: keys?.removed.length ?? 0,
      policies: policies?.length,
      exactOverrides: exact !== undefined,
      wildcardOverrides: trie !== undefined,
    };
    this.#log.debug(
      { version, ...changed, ms: roundToMicroseconds(ms) },
      'a publication is active',
    );
  }

  /** Replaces API keys in a text of a client. */
  redactKeys(text: string): string {
    const redacted = text.replace(KEY_PATTERN, REDACTED_KEY);
    return this.#rootKeyPattern === undefined
      ? redacted
      : redacted.replace(this.#rootKeyPattern, REDACTED_KEY);
  }
}

/** The match needs only this many characters: a message may quote the beginning of a long path. */
const KEY_PREFIX_CHARACTERS = 8;

/**
 * Matches a key in each way that JSON or a URL may escape it, from its beginning to the end of the
 * word. Consecutive slashes of the key count as one, as in a path.
 */
function keyPattern(key: string): RegExp {
  const beginning = [...key.slice(0, KEY_PREFIX_CHARACTERS)].map((character) => {
    const code = character.charCodeAt(0).toString(16);
    return character === '/' ? `(?:/|%${code})+` : `(?:\\\\?\\x${code}|%${code})`;
  });
  return new RegExp(`${beginning.join('')}[^\\s"]*`, 'gi');
}

function roundToMicroseconds(ms: number): number {
  return Math.round(ms * 1e3) / 1e3;
}
