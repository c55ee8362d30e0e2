/**
 * Every failure of Redis as one of a few kinds, which decide what happens next. Messages name the
 * server, and never contain a password.
 */

export const REDIS_ERROR_KINDS = [
  /** There is no connection. The command was not sent. */
  'unreachable',
  /** The connection was lost before the answer. The command may have run. */
  'lost',
  /** No answer within the deadline. The command may have run. */
  'timeout',
  /** The server is reading its data from disk. */
  'loading',
  /** The server is a replica now. */
  'readOnly',
  /** `maxmemory` is reached. */
  'outOfMemory',
  /** The user, the password or the permissions of the user are wrong. */
  'denied',
  /** The node does not serve the slot, or the cluster is incomplete. */
  'cluster',
  'noScript',
  /** The server accepts no writes: it cannot save its data, or has too few replicas. */
  'misconfigured',
  /** A replica has lost its primary. */
  'primaryDown',
  /** Fewer replicas than required have the change. The command has run. */
  'notReplicated',
  /** Another script runs for too long. */
  'busy',
  /** The server answered with another error. */
  'rejected',
  /** The server answered with something that is not the protocol, or not the expected answer. */
  'unexpectedReply',
  /** The server is too old, or not of the kind that the URL says. */
  'unsupported',
] as const;
export type RedisErrorKind = (typeof REDIS_ERROR_KINDS)[number];

const KINDS_AFTER_RUN: ReadonlySet<RedisErrorKind> = new Set([
  ...(['lost', 'timeout', 'notReplicated', 'rejected', 'unexpectedReply'] as const),
]);

export class RedisError extends Error {
  readonly kind: RedisErrorKind;
  /** The error as the server sent it; '' if it did not come from a server. */
  readonly reply: string;

  constructor(kind: RedisErrorKind, message: string, reply = '') {
    super(message);
    this.kind = kind;
    this.reply = reply;
  }

  /** Whether the command may have changed something. A script may fail after its first changes. */
  get mayHaveRun(): boolean {
    return KINDS_AFTER_RUN.has(this.kind);
  }
}

/** By the first word of an error of the server. */
const KINDS: ReadonlyMap<string, RedisErrorKind> = new Map([
  ['LOADING', 'loading'],
  ['READONLY', 'readOnly'],
  ['OOM', 'outOfMemory'],
  ['NOAUTH', 'denied'],
  ['WRONGPASS', 'denied'],
  ['NOPERM', 'denied'],
  ['MOVED', 'cluster'],
  ['ASK', 'cluster'],
  ['CLUSTERDOWN', 'cluster'],
  ['TRYAGAIN', 'cluster'],
  ['CROSSSLOT', 'cluster'],
  ['NOSCRIPT', 'noScript'],
  ['MISCONF', 'misconfigured'],
  ['MASTERDOWN', 'primaryDown'],
  ['NOREPLICAS', 'misconfigured'],
  ['BUSY', 'busy'],
  ['UNKILLABLE', 'busy'],
]);

/** An answer of a server that is an error. */
export function errorOfReply(server: string, reply: string): RedisError {
  const [word] = /^[A-Z]+/.exec(reply) ?? [''];
  return new RedisError(KINDS.get(word) ?? 'rejected', `${server}: ${reply}`, reply);
}

/** A failure of a connection. */
export function errorOfConnection(server: string, error: unknown): RedisError {
  if (error instanceof RedisError) return error;
  return new RedisError('unreachable', `${server}: ${describeCause(error)}`);
}

function describeCause(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // An attempt to reach several addresses of one host has one error for each.
  const { code, message } = error as NodeJS.ErrnoException;
  return message === '' ? (code ?? error.name) : message;
}

/** The new place of a slot, from an answer MOVED or ASK. */
export interface Redirection {
  kind: 'MOVED' | 'ASK';
  slot: number;
  /** '' means the host that answered. */
  host: string;
  port: number;
}

export function parseRedirection({ reply }: RedisError): Redirection | undefined {
  const [, kind, slot, host, port] = /^(MOVED|ASK) (\d+) (.*):(\d+)$/.exec(reply) ?? [];
  if (kind === undefined || host === '?') return undefined;
  return { kind: kind as Redirection['kind'], slot: Number(slot), host, port: Number(port) };
}
