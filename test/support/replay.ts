/**
 * Records checks with the times at which they were sent and answered, and replays them: what each
 * window allowed, and which denials were certainly false. All times must be of one clock.
 *
 * A denial is certainly false if its cost fits beside the tokens of all allowed checks of its
 * window that were sent before the denial was received. Any other check was allowed later. So no
 * order in which the machines may have decided explains such a denial.
 */

/** Offsets of a check in a log. */
const COLUMN = {
  id: 0,
  reset: 1,
  cost: 2,
  allowed: 3,
  sentMs: 4,
  receivedMs: 5,
  waited: 6,
} as const;
const COLUMNS = Object.keys(COLUMN).length;

/** Checks in the order of their answers. */
export class CheckLog {
  length = 0;
  readonly #rows: number[] = [];

  /** @param waited whether the check waited for Redis, if that is known */
  add(
    id: number,
    reset: number,
    cost: number,
    allowed: boolean,
    sentMs: number,
    receivedMs: number,
    waited = false,
  ): void {
    this.length++;
    this.#rows.push(id, reset, cost, Number(allowed), sentMs, receivedMs, Number(waited));
  }

  /** The checks, to be sent to another thread. */
  rows(): Float64Array {
    return new Float64Array(this.#rows);
  }
}

export interface LoggedCheck {
  reset: number;
  sentMs: number;
  receivedMs: number;
}

/** The allowed checks of all logs. */
export function allowedChecks(logs: readonly Float64Array[]): LoggedCheck[] {
  const rows = joined(logs);
  const checks: LoggedCheck[] = [];
  for (let at = 0; at < rows.length; at += COLUMNS) {
    if (rows[at + COLUMN.allowed] === 0) continue;
    const [sentMs, receivedMs] = [rows[at + COLUMN.sentMs], rows[at + COLUMN.receivedMs]];
    checks.push({ reset: rows[at + COLUMN.reset], sentMs, receivedMs });
  }
  return checks;
}

interface Replay {
  decisions: number;
  /** Windows of all identifiers. */
  windows: number;
  /** Tokens that windows allowed above their limit. */
  overAdmission: number;
  denials: number;
  certainlyFalse: number;
  /** Windows that denied a check of cost 1. Of those: allowed tokens in parts of the limit. */
  exhausted: number;
  leastUtilisation: number;
  meanUtilisation: number;
  /** Times of all checks, and of those that are known to have waited, ms, ascending. */
  timesMs: Float64Array;
  waitsMs: Float64Array;
  /** Descriptions of the first few violations. */
  violations: string[];
}

const VIOLATIONS_SHOWN = 5;

interface Window {
  id: number;
  reset: number;
  tokens: number;
  smallestDenied: number;
  /** Where its checks are. */
  allowed: number[];
  denied: number[];
}

/** @param logs the rows of the logs of all machines */
export function replay(logs: readonly Float64Array[], limitOf: (id: number) => number): Replay {
  const rows = joined(logs);
  const decisions = rows.length / COLUMNS;
  const windows = windowsOf(rows);
  const times = new Float64Array(decisions);
  const waits: number[] = [];
  for (let i = 0; i < decisions; i++) {
    const at = i * COLUMNS;
    times[i] = rows[at + COLUMN.receivedMs] - rows[at + COLUMN.sentMs];
    if (rows[at + COLUMN.waited] === 1) waits.push(times[i]);
  }
  let overAdmission = 0;
  let denials = 0;
  let certainlyFalse = 0;
  const shares: number[] = [];
  const violations: string[] = [];
  const note = (text: string) => {
    if (violations.length < VIOLATIONS_SHOWN) violations.push(text);
  };
  for (const window of windows) {
    const limit = limitOf(window.id);
    const { tokens, denied, smallestDenied } = window;
    const name = `${window.id}/${window.reset}`;
    if (tokens > limit) note(`${name}: allowed ${tokens} of ${limit}`);
    overAdmission += Math.max(0, tokens - limit);
    denials += denied.length;
    const wrong = findCertainlyFalse(rows, window, limit);
    if (wrong.length > 0) {
      const [{ at, sent }] = wrong;
      const ms = (rows[at + COLUMN.receivedMs] - rows[at + COLUMN.sentMs]).toFixed(1);
      const first = `the first of ${rows[at + COLUMN.cost]} after ${sent} of ${limit} in ${ms} ms`;
      note(`${name}: allowed ${tokens}, ${wrong.length} false denials, ${first}`);
    }
    certainlyFalse += wrong.length;
    if (smallestDenied <= 1) shares.push(tokens / limit);
  }
  return {
    ...{ decisions, windows: windows.length, overAdmission, denials, certainlyFalse, violations },
    exhausted: shares.length,
    leastUtilisation: shares.reduce((least, share) => Math.min(least, share), 1),
    meanUtilisation:
      shares.length === 0 ? 1 : shares.reduce((sum, share) => sum + share, 0) / shares.length,
    timesMs: times.sort(),
    waitsMs: Float64Array.from(waits).sort(),
  };
}

/** @param sorted ascending; 0 if it is empty */
export function quantile(sorted: Float64Array, share: number): number {
  if (sorted.length === 0) return 0;
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
}

/** @returns where they are, and the tokens that may have been used by then */
function findCertainlyFalse(
  rows: Float64Array,
  { allowed, denied, tokens, smallestDenied }: Window,
  limit: number,
): { at: number; sent: number }[] {
  if (denied.length === 0 || smallestDenied > limit) return [];
  const bySent = allowed.toSorted((a, b) => rows[a + COLUMN.sentMs] - rows[b + COLUMN.sentMs]);
  const sentMs = Float64Array.from(bySent, (at) => rows[at + COLUMN.sentMs]);
  const lastSentMs = sentMs.at(-1) ?? 0;
  const before = new Float64Array(bySent.length + 1);
  for (const [i, at] of bySent.entries()) before[i + 1] = before[i] + rows[at + COLUMN.cost];
  const wrong: { at: number; sent: number }[] = [];
  for (const at of denied) {
    const cost = rows[at + COLUMN.cost];
    const receivedMs = rows[at + COLUMN.receivedMs];
    // Nearly all denials are received when the last check was sent.
    const sent = lastSentMs < receivedMs ? tokens : before[countBelow(sentMs, receivedMs)];
    if (sent + cost <= limit) wrong.push({ at, sent });
  }
  return wrong;
}

/** @returns how many of the ascending values are below a value */
function countBelow(ascending: Float64Array, value: number): number {
  let low = 0;
  let high = ascending.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (ascending[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function windowsOf(rows: Float64Array): Window[] {
  const byReset = new Map<number, Map<number, Window>>();
  const windows: Window[] = [];
  for (let at = 0; at < rows.length; at += COLUMNS) {
    const id = rows[at + COLUMN.id];
    const reset = rows[at + COLUMN.reset];
    let byId = byReset.get(reset);
    if (byId === undefined) {
      byId = new Map();
      byReset.set(reset, byId);
    }
    let window = byId.get(id);
    if (window === undefined) {
      const smallestDenied = Number.POSITIVE_INFINITY;
      window = { id, reset, tokens: 0, smallestDenied, allowed: [], denied: [] };
      byId.set(id, window);
      windows.push(window);
    }
    const cost = rows[at + COLUMN.cost];
    if (rows[at + COLUMN.allowed] === 1) {
      window.tokens += cost;
      window.allowed.push(at);
    } else {
      window.smallestDenied = Math.min(window.smallestDenied, cost);
      window.denied.push(at);
    }
  }
  return windows;
}

function joined(logs: readonly Float64Array[]): Float64Array {
  const rows = new Float64Array(logs.reduce((sum, log) => sum + log.length, 0));
  let at = 0;
  for (const log of logs) {
    rows.set(log, at);
    at += log.length;
  }
  return rows;
}
