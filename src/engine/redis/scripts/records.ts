/**
 * The layout of everything that counters store in Redis, and of all messages to and from their
 * scripts. The scripts get each layout as a constant of Lua by the same name, and the fields of a
 * record as constants or as names of variables; the codecs encode and decode by it.
 *
 * A bucket of counters has these keys. `<identity>` is 32 hexadecimal digits, `<member>` 16 digits
 * of the process and the number of its shard worker. Durations are ms, windows their numbers.
 *
 *   weir:{tag}:m                                  hash   the bucket: clock, epoch, members
 *                 a                                      META
 *                 e                                      the run id of the server that wrote it:
 *                                                        another one may have lost memory
 *                 s                                      how many keys the server had evicted
 *                 m:<member>                             MEMBER
 *                 f:<member>                             when it was forgotten, µs: it is not added
 *                                                        again because another presents it
 *   weir:{tag}:c:<identity>:<duration>:<window>   hash   a counter of one window
 *                 a                                      TOTALS
 *                 <member>                               ACCOUNT
 *                 w                                      members that wait for tokens, each
 *                                                        followed by a comma
 *                 v                                      the epoch in which it was verified
 *                 p                                      exists if the counter of the window before
 *                                                        existed when this one was made
 *                 k                                      the most usage that a machine knew of all,
 *                                                        in reports to a Redis that had lost some
 *                 x                                      usage that was restored by it, of machines
 *                                                        that have not reported
 *   weir:{tag}:g:<identity>:<duration>            string GCRA
 *   weir:{tag}:i:<identity>                       hash   the index: which counters there are
 *                 w:<duration>                           when the last window expires, Unix ms
 *                 g:<duration>                           until when the bucket is known, Unix ms
 *   weir:{tag}:h:<hold>                           string HOLD, the identity, and the references of
 *                                                        the other holds of its list
 *   weir:{tag}:o:<identity>                       zset   its live holds, by expiry
 *   weir:{tag}:u:<identity>                       hash   sums of its live holds
 *                 <kind>                                 tokens
 *                 v:<w or g>                             when counters of all durations were reset
 *                 v:<w or g>:<duration>                  when the counter was reset, µs
 *   weir:{tag}:x                                  zset   all live holds of the bucket, by expiry.
 *                                                        Each with what its sums need
 *   weir:{tag}:y                                  zset   ended holds of the bucket, by their end
 *   weir:{tag}:q:<request>                        string an answer that a request may repeat, or
 *                                                        the claim of the acceptor that decides it
 *   weir:{tag}:r:<member>                         channel of a member: notices
 *
 * `<hold>` is `<kind>.<secret>.<number>`: the secret of its id in 24 hexadecimal digits, and its
 * number in the list of a reservation.
 */

import {
  AMOUNT_MAX,
  ENDED_HOLD_MS,
  LISTED_HOLDS_MAX,
  REQUEST_ID_MS,
} from '../../../core/constants.ts';
import { RULE } from '../../../core/window-rules.ts';
import { HOLD_KIND } from '../../hold-id.ts';
import { CALL_STATUS, MESSAGE_STATUS, SERVED } from './protocol.ts';
import * as protocolConstants from './protocol-constants.ts';

/** Numbers as little-endian doubles, for `struct` of Lua. */
export interface Doubles<Name extends string = string> {
  readonly names: readonly Name[];
  /** The place of each. */
  readonly at: Readonly<Record<Name, number>>;
  readonly format: string;
  readonly bytes: number;
}

function doubles<Name extends string>(...names: readonly Name[]): Doubles<Name> {
  const format = `<${'d'.repeat(names.length)}`;
  return { names, at: placesOf(names), format, bytes: 8 * names.length };
}

/** Fields of a text, separated by spaces, in the form of `string.format`. */
export interface Fields<Name extends string = string> {
  /** The place of each. */
  readonly at: Readonly<Record<Name, number>>;
  readonly count: number;
  readonly format: string;
}

function fields<Name extends string>(forms: Readonly<Record<Name, string>>): Fields<Name> {
  const names = Object.keys(forms) as Name[];
  const format = Object.values(forms).join(' ');
  return { at: placesOf(names), count: names.length, format };
}

function placesOf<Name extends string>(names: readonly Name[]): Record<Name, number> {
  return Object.fromEntries(names.map((name, i) => [name, i])) as Record<Name, number>;
}

/** How members name an epoch: the run id of the server, and the number. */
const EPOCH = '%s.%d';

/** What keys and fields begin with, and whole names of fields. */
export const NAMES = {
  BUCKET_KEY: 'm',
  COUNTER_KEY: 'c:',
  GCRA_KEY: 'g:',
  INDEX_KEY: 'i:',
  CHANNEL_KEY: 'r:',
  HOLD_KEY: 'h:',
  IDENTITY_HOLDS_KEY: 'o:',
  HOLD_SUMS_KEY: 'u:',
  HOLD_ENDS_KEY: 'x',
  ENDED_HOLDS_KEY: 'y',
  HOLD_VOIDED: 'v:',
  REQUEST_KEY: 'q:',
  BUCKET_META: 'a',
  BUCKET_RUN_ID: 'e',
  BUCKET_EVICTED_KEYS: 's',
  BUCKET_MEMBER: 'm:',
  BUCKET_MEMBER_PATTERN: '^m:(.+)$',
  BUCKET_FORGOTTEN: 'f:',
  BUCKET_FORGOTTEN_PATTERN: '^f:(.+)$',
  COUNTER_TOTALS: 'a',
  COUNTER_WAITING: 'w',
  COUNTER_VERIFIED: 'v',
  COUNTER_HAD_PREVIOUS: 'p',
  COUNTER_KNOWN_MAX: 'k',
  COUNTER_RESTORED: 'x',
  INDEX_WINDOWS: 'w:',
  INDEX_GCRA: 'g:',
  INDEX_PATTERN: '^([wg]):(%d+)$',
  /** The kinds of counters in the index. */
  KIND_WINDOWS: 'w',
  KIND_GCRA: 'g',
  /** Of the name of a member. */
  MACHINE_PATTERN: '^[^.]+',
} as const;

/** What is stored. A name that ends in `Us` is a time in µs: Unix time by the bucket's clock. */
export const RECORDS = {
  META: doubles(
    // The clock, and TIME when it was stored.
    'anchorUs',
    'anchorTimeUs',
    // Windows that began before are suspect, until all members have reported; 0: there is none.
    'fenceUs',
    'epochNumber',
    'membersVersion',
    'machineCount',
    // When the machines were counted.
    'countedUs',
    // The last fence that was removed without all reports.
    'openedUs',
    // When keys were last found to be lost.
    'lostUs',
  ),
  MEMBER: doubles(
    'calledUs',
    // The version of the list of members that first had it, and the newest that it knows.
    'addedVersion',
    'knownVersion',
    'hasJoined',
    // The epochs for which it has presented the members that it knows, and reported its counters.
    'presentedIn',
    'reportedIn',
  ),
  TOTALS: doubles(
    // Tokens that are spent or in leases, and those of them that are known to be spent, or were
    // written off.
    'deducted',
    'usage',
    // Tokens per second of all machines.
    'rateSum',
    'recallNumber',
    'recalledUs',
    // Of the last allowed check.
    'limit',
    // TOTALS_FLAG.
    'flags',
  ),
  ACCOUNT: doubles(
    // The parts of this machine.
    'deducted',
    'usage',
    // Of its last message.
    'sequence',
    // What the member had reported as `spent` before the last reset.
    'base',
    'rate',
    // ACCOUNT_FLAG.
    'flags',
    // When it was first and last requested to return its lease, or to report, and did not. The
    // first is the number of the request for a report.
    'firstRequestUs',
    'lastRequestUs',
  ),
  // The bucket is full at newest - current / lastLimit, Unix time in ms. The others, Unix ms: until
  // when the index knows it, until when it is kept, and until when it is held.
  GCRA: doubles('newest', 'current', 'lastLimit', 'indexedUntil', 'keptUntil', 'heldUntil'),
  // The fields of a reservation or lease: see `HoldTerms` and `HoldAnswer` in `holds.ts`.
  HOLD: doubles(
    // HOLD_KIND, and HOLD_STATE.
    ...(['kind', 'state', 'limit', 'durationMs', 'rule', 'window'] as const),
    // A lower bound of the time at which its tokens were deducted.
    'reservedUs',
    'tokens',
    // The tokens that count for it now, and those that its commit has returned.
    'charged',
    'released',
    'expiresMs',
    'namespace0',
    'namespace1',
    // HOLD_FLAG.
    'flags',
  ),
} as const;

const HOLD_STATE = { live: 1, ended: 2, expired: 3 } as const;
/** Whether its expiry charges its tokens, it was committed late, or it returns nothing. */
export const HOLD_FLAG = { charges: 1, isLate: 2, isVoided: 4 } as const;

const TOTALS_FLAG = {
  /** Members wait for tokens. */
  hasWaiting: 1,
  /** Machines deny checks by the known usage. */
  hasDenying: 2,
  /** There is COUNTER_KNOWN_MAX. */
  mustRestore: 4,
  /** Usage may be missing. */
  isMissing: 8,
  /** Tokens were written off. */
  writtenOff: 16,
  /** Reports are only for the sake of the window before. */
  onlyForPrevious: 32,
  /** For each member that must report. */
  awaited: 64,
} as const;

const ACCOUNT_FLAG = {
  /** Its lease is written off. */
  writtenOff: 1,
  /** It denies checks by the known usage, and gets a notice when that falls. */
  denies: 2,
  mustReport: 4,
  /** It did not report in time. */
  missedReport: 8,
  /** It must report only because the counter may have existed. */
  isGuess: 16,
} as const;

/** The base of an account whose window was over at its reset: all usage was before the reset. */
export const CLEARED_BASE = 2 ** 52;
/** The sequence number of an account that another member has taken over: none is greater. */
const TAKEN_SEQUENCE = 2 ** 53;

/**
 * The third argument of all scripts of a member: HEADER, and then the messages. The first two are
 * the member and the epoch for which it has reported. For `protocol.ts` see the meaning of fields.
 */
export const MESSAGES = {
  HEADER: doubles('acknowledged', 'seenUs', 'callFlags'),
  MESSAGE: doubles(
    ...(['durationMs', 'window', 'spent', 'previousSpent', 'sequence', 'firstSequence'] as const),
    ...(['kept', 'rate', 'lastLimit', 'messageFlags', 'others', 'previousKnown'] as const),
    ...(['report', 'inherits', 'checkCount'] as const),
  ),
  // After MESSAGE, so many times.
  CHECK: doubles('cost', 'checkLimit', 'checkFlags'),
  // After the checks, if MESSAGE_FLAG says so.
  REFUND: doubles('refund', 'refundWindow'),
  // A report has its `newest` and `current` in the places of `size` and `cost`.
  GCRA_MESSAGE: doubles(
    ...(['durationMs', 'kind', 'limit', 'size', 'cost'] as const),
    ...(['knownNewest', 'knownCurrent', 'knownLimit'] as const),
  ),
  BEGIN_HOLD: doubles(
    ...(['operation', 'kind', 'limit', 'durationMs', 'rule', 'window'] as const),
    ...(['reservedUs', 'tokens', 'ttlMs', 'expiresMs', 'namespace0', 'namespace1'] as const),
    // How many holds may be live in the bucket, and recorded with those that have ended.
    ...(['flags', 'capacity'] as const),
  ),
  END_HOLD: doubles('operation', 'cost', 'ttlMs', 'capacity'),
} as const;

/** `record` stores a hold, `report` one that Redis may have lost. */
export const BEGIN_OPERATION = { record: 1, acquire: 2, report: 3 } as const;
/** The last three are not about one hold: `list` and `endLeases` are about an identity. */
export const END_OPERATION = {
  ...{ find: 1, settle: 2, renew: 3, release: 4, drop: 5, expire: 6, list: 7, endLeases: 8 },
} as const;
export const HOLD_STATUS = {
  done: 0,
  unknown: 1,
  /** Redis has lost memory, and the hold may not be reported yet. */
  recovering: 2,
  /** More holds have expired than a call ends: nothing was done for the hold itself. */
  again: 3,
  /** Too many holds are live, or Redis is at `maxmemory`: the hold is not recorded. */
  full: 4,
} as const;
/** A request is claimed before it is decided. Its answer is stored, or its claim dropped. */
export const REQUEST_OPERATION = { claim: 1, store: 2, drop: 3 } as const;
export const REQUEST_STATUS = {
  claimed: 0,
  /** It is being decided elsewhere. */
  busy: 1,
  answered: 2,
  /** It was allowed with other parameters. */
  conflict: 3,
} as const;

const HEADER_ARGUMENTS = 3;
export const CALL_FLAG = { isCluster: 1, isAvailable: 2 } as const;
export const MESSAGE_FLAG = {
  ...{ wantsLease: 1, recalls: 2, isStored: 4, hasPrevious: 8, isSliding: 16, hasRefund: 32 },
} as const;
export const CHECK_FLAG = { isSliding: 1, countsDenied: 2 } as const;
export const GCRA_KIND = { check: 0, countedCheck: 1, refund: 2, report: 3 } as const;

/** The lines of replies. Those of `exchange` and `gcra` have one for the call, then the answers. */
export const ANSWERS = {
  ANSWER_HEADER: fields({
    ...{ status: '%d', clockUs: '%d', epoch: EPOCH, isRecovering: '%d', membersVersion: '%d' },
    ...{ machineCount: '%d' },
  }),
  // If one of them is not 0.
  ANSWER_HEADER_END: fields({ openedUs: '%d', aheadUs: '%d' }),
  // Of a message that was not served.
  REFUSAL: fields({ sequence: '%d', status: '%d' }),
  ANSWER: fields({
    ...{ sequence: '%d', status: '%d', window: '%d', leftUs: '%d', flags: '%d', others: '%d' },
    ...{ othersDeducted: '%d', lent: '%d', recall: '%d', refunded: '%d', served: 's%s' },
  }),
  // If the window before was read, or one of the last three is not 0.
  ANSWER_END: fields({
    ...{
      previousUsage: '%d',
      previousKnownUsage: '%d',
      writtenOff: '%d',
      state: '%d',
      report: '%d',
    },
  }),
  GCRA_REFUSAL: fields({ status: '%d', reset: '%d' }),
  GCRA_ANSWER: fields({
    ...{ status: '%d', isAllowed: '%d', remaining: '%d', reset: '%d', window: '%d' },
    ...{ refunded: '%d', isMissing: '%d', newest: '%d', current: '%d', limit: '%d' },
  }),
  INSPECT_HEADER: fields({ clockUs: '%d', isRecovering: '%d' }),
  INSPECT_LINE: fields({
    ...{ kind: '%s', durationMs: '%s', limit: '%d', newest: '%d', current: '%d', previous: '%d' },
    ...{ lent: '%d' },
  }),
  RESET_ANSWER: fields({ isRecovering: '%d', count: '%d' }),
  // `expired` holds were ended for the call. `nextMs` is when the next one expires, Unix ms; 0 if
  // none is live.
  HOLD_ANSWER: fields({
    ...{ status: '%d', isGranted: '%d', inUse: '%d', limit: '%d', expiresMs: '%d' },
    ...{ charged: '%d', released: '%d', isLate: '%d', namespace0: '%d', namespace1: '%d' },
    ...{ durationMs: '%d', rule: '%d' },
    ...{ identity: '%s', others: '%s', expired: '%d', nextMs: '%d' },
  }),
  HOLDS_HEADER: fields({ count: '%d', reserved: '%d', inUse: '%d' }),
  HOLDS_LINE: fields({
    ...{ hold: '%s', kind: '%d', tokens: '%d', limit: '%d', durationMs: '%d', rule: '%d' },
    ...{ expiresMs: '%d' },
  }),
  REQUEST_ANSWER: fields({ status: '%d', answer: '%s' }),
  LIST_HEADER: fields({ version: '%d', clockUs: '%d', isRecovering: '%d' }),
  LIST_LINE: fields({
    ...{ member: '%s', silentMs: '%d', hasJoined: '%d', acknowledged: '%d', isAwaited: '%d' },
  }),
} as const;

/** Of ANSWER: whether the account is stored, and the known usage may deny; then the pause, ms. */
export const ANSWER_FLAG = { isStored: 1, mayDeny: 2, pause: 4 } as const;
/** Of ANSWER_END. */
export const ANSWER_STATE = { isUnknown: 1, isMissing: 2, writtenOff: 4 } as const;

const COUNTER = { identity: '%s', durationMs: '%d' } as const;

/**
 * What scripts publish to members, by kind. `number` is that of the recall, or of the request for a
 * report. A member of another version ignores a kind that it does not know. Of a kind that it knows
 * it rejects fewer or more fields.
 */
export const NOTICES = {
  recall: fields({ kind: 'recall', ...COUNTER, window: '%d', number: '%d' }),
  report: fields({ kind: 'report', ...COUNTER, window: '%d', number: '%d' }),
  wake: fields({ kind: 'wake', ...COUNTER, window: '%d' }),
  reset: fields({ kind: 'reset', ...COUNTER, window: '%d' }),
  bucket: fields({ kind: 'bucket', ...COUNTER }),
  epoch: fields({ kind: 'epoch', epoch: EPOCH }),
} as const;

/** What the scripts use of this, and of the constants of the protocol. */
export function luaConstants(): Record<string, string | number> {
  const numbers = Object.entries(protocolConstants).filter(
    ([, value]) => typeof value === 'number',
  );
  const formats = (layouts: Readonly<Record<string, Doubles | Fields>>, prefix = '') => {
    const entries = Object.entries(layouts);
    return Object.fromEntries(
      entries.map(([name, { format }]) => [prefix + name.toUpperCase(), format]),
    );
  };
  const digits = (values: Readonly<Record<string, number>>) => {
    return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, `${value}`]));
  };
  return {
    ...(Object.fromEntries(numbers) as Record<string, number>),
    ...NAMES,
    ...formats({ ...RECORDS, ...MESSAGES, ...ANSWERS }),
    ...formats(NOTICES, 'NOTICE_'),
    ...upperCase('TOTALS', TOTALS_FLAG),
    ...upperCase('ACCOUNT', ACCOUNT_FLAG),
    ...upperCase('CALL', { ...CALL_FLAG, ...CALL_STATUS }),
    ...upperCase('MESSAGE', { ...MESSAGE_FLAG, ...MESSAGE_STATUS }),
    ...upperCase('CHECK', CHECK_FLAG),
    ...upperCase('GCRA', GCRA_KIND),
    ...upperCase('RULE', RULE),
    ...upperCase('KIND', HOLD_KIND),
    ...upperCase('STATE', HOLD_STATE),
    ...upperCase('FLAG', HOLD_FLAG),
    ...upperCase('BEGIN', BEGIN_OPERATION),
    ...upperCase('END', END_OPERATION),
    ...upperCase('HOLD', HOLD_STATUS),
    ...upperCase('REQUEST', { ...REQUEST_OPERATION, ...REQUEST_STATUS }),
    ...upperCase('ANSWER', { ...ANSWER_FLAG, ...ANSWER_STATE }),
    // Digits of a text.
    ...digits(upperCase('SERVED', SERVED)),
    EPOCH,
    HEADER_ARGUMENTS,
    CHECK_BYTES: MESSAGES.CHECK.bytes,
    GCRA_BYTES: RECORDS.GCRA.bytes,
    HOLD_BYTES: RECORDS.HOLD.bytes,
    ENDED_HOLD_MS,
    LISTED_HOLDS_MAX,
    REQUEST_ID_MS,
    CLEARED_BASE,
    TAKEN_SEQUENCE,
    AMOUNT_MAX,
  };
}

/** `{ mayDeny: 2 }` of ANSWER is ANSWER_MAY_DENY. */
function upperCase(
  prefix: string,
  values: Readonly<Record<string, number>>,
): Record<string, number> {
  const name = (key: string) => `${prefix}_${key.replace(/[A-Z]/g, '_$&').toUpperCase()}`;
  return Object.fromEntries(Object.entries(values).map(([key, value]) => [name(key), value]));
}
