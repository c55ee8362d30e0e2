/**
 * The rates that `weir top` shows: differences of what a server has counted at two readings. The
 * server counts by hour. A reading covers the hour of the reading before it up to now, so no check
 * is missed when an hour ends.
 */

import { GRANULARITY_MS } from '../analytics/granularity.ts';
import { ANALYTICS_IDENTIFIERS_MAX, ANALYTICS_NAMESPACES_PAGE_MAX } from '../core/constants.ts';
import { addFigures, type Figures, NO_FIGURES } from '../core/figures.ts';
import { monotonicMs } from '../shared-memory/clock.ts';
import type { AnalyticsReader, ListedIdentifier, NamespaceFields } from './analytics.ts';

export interface NamespaceRate {
  name: string;
  /** Checks per second; undefined at the first reading. */
  allowed: number | undefined;
  denied: number | undefined;
  /** Of the last seconds, by which the rows of a live view are ranked. */
  smoothed: { checks: number; denied: number };
  /** In the current hour. */
  hour: Figures;
}

export interface IdentifierRate extends ListedIdentifier {
  /** Denied checks or tokens per second; undefined at the first reading. */
  perSecond: number | undefined;
}

export interface IdentifierRates {
  denied: IdentifierRate[];
  spent: IdentifierRate[];
  isComplete: boolean;
}

/** What was counted from the start of an hour up to now. */
interface Reading {
  /** The current hour begins at this time. */
  currentHour: number;
  figures: ReadonlyMap<string, Figures>;
  /** Whether these are all namespaces with checks. */
  isComplete: boolean;
  atMs: number;
}

/** The rates of one namespace, or of all. Each call throws the StartErrors of the client. */
export class NamespaceMeter {
  readonly #client: AnalyticsReader;
  readonly #namespace: NamespaceFields | undefined;
  /** Of the hour that was current then. */
  #last: Reading | undefined;
  readonly #checks = new SmoothedRates();
  readonly #denied = new SmoothedRates();

  constructor(client: AnalyticsReader, namespace?: NamespaceFields) {
    this.#client = client;
    this.#namespace = namespace;
  }

  /** The rates since the last reading, the highest of the last seconds first. */
  async refresh(): Promise<NamespaceRate[]> {
    const last = this.#last;
    // Only the server knows its hour.
    const reading = await this.#read(last?.currentHour);
    const isSameHour = last !== undefined && reading.currentHour === last.currentHour;
    const hour = isSameHour ? reading : await this.#read(reading.currentHour);
    this.#last = hour;
    const rates = [...reading.figures].map(([name, figures]) => {
      const rate = last === undefined ? NO_RATE : rateOf(name, figures, last, reading.atMs);
      return { name, hour: hour.figures.get(name) ?? NO_FIGURES, ...rate };
    });
    const checks = this.#checks.update(rates.map((rate) => [rate.name, checksOf(rate)]));
    const denied = this.#denied.update(rates.map(({ name, denied = 0 }) => [name, denied]));
    return rates
      .map((rate, i) => ({ ...rate, smoothed: { checks: checks[i], denied: denied[i] } }))
      .sort((a, b) => b.smoothed.checks - a.smoothed.checks || hourChecks(b) - hourChecks(a));
  }

  /** Forgets the last reading, for a server that may count anew. */
  reset(): void {
    this.#last = undefined;
  }

  async #read(start: number | undefined): Promise<Reading> {
    if (this.#namespace === undefined) {
      const limit = ANALYTICS_NAMESPACES_PAGE_MAX;
      const { namespaces, total, end } = await this.#client.namespaces({ start, limit });
      const figures = new Map(namespaces.map((item) => [item.name, item]));
      return readingOf(end, figures, total <= namespaces.length);
    }
    const query = { ...this.#namespace, start, granularity: 'hour' } as const;
    const { namespace, points, end } = await this.#client.timeline(query);
    const sums = points.reduce(addFigures, NO_FIGURES);
    return readingOf(end, new Map([[namespace.name, sums]]), true);
  }
}

/** How long a burst changes the rank of a row. */
const SMOOTHING_SECONDS = 5;

/** Moving averages: rows that are ranked by them keep their places while their rates vary. */
export class SmoothedRates {
  #averages = new Map<string, number>();
  #atMs = Number.NEGATIVE_INFINITY;

  /** @param rates per second, by key. @returns the averages in the same order */
  update(rates: readonly (readonly [key: string, rate: number])[], atMs = monotonicMs()): number[] {
    const seconds = (atMs - this.#atMs) / 1_000;
    const share = 1 - Math.exp(-seconds / SMOOTHING_SECONDS);
    const averages = rates.map(([key, rate]): [string, number] => {
      const before = this.#averages.get(key) ?? rate;
      return [key, before + share * (rate - before)];
    });
    this.#averages = new Map(averages);
    this.#atMs = atMs;
    return averages.map(([, average]) => average);
  }
}

const NO_RATE = { allowed: undefined, denied: undefined };

function readingOf(
  end: number,
  figures: ReadonlyMap<string, Figures>,
  isComplete: boolean,
): Reading {
  return { currentHour: end - GRANULARITY_MS.hour, figures, isComplete, atMs: monotonicMs() };
}

function rateOf(name: string, { allowed, denied }: Figures, last: Reading, atMs: number) {
  const before = last.figures.get(name) ?? (last.isComplete ? NO_FIGURES : undefined);
  if (before === undefined) return NO_RATE;
  const seconds = secondsBetween(last.atMs, atMs);
  return {
    allowed: perSecond(allowed - before.allowed, seconds),
    denied: perSecond(denied - before.denied, seconds),
  };
}

/** A server that was killed has lost what it had not written: its counts are lower then. */
function perSecond(difference: number, seconds: number): number {
  return Math.max(0, difference) / seconds;
}

function secondsBetween(fromMs: number, toMs: number): number {
  return Math.max(1, toMs - fromMs) / 1_000;
}

function checksOf({
  allowed = 0,
  denied = 0,
}: {
  allowed: number | undefined;
  denied: number | undefined;
}): number {
  return allowed + denied;
}

function hourChecks({ hour }: NamespaceRate): number {
  return hour.allowed + hour.denied;
}

/** Proven counts in the current hour, by identifier. */
interface ProvenCounts {
  counts: ReadonlyMap<string, number>;
  /** The most that an identifier outside of the list can have as its proven count. */
  unlistedMax: number;
}

interface IdentifierReading {
  hour: number;
  denied: ProvenCounts;
  spent: ProvenCounts;
  atMs: number;
}

/** An hour begins without counts. */
const NO_COUNTS: ProvenCounts = { counts: new Map(), unlistedMax: 0 };

/** The rates of the identifiers of a namespace. Each call throws the StartErrors of the client. */
export class IdentifierMeter {
  readonly #client: AnalyticsReader;
  readonly #namespace: NamespaceFields;
  #last: IdentifierReading | undefined;
  readonly #smoothed = { denied: new SmoothedRates(), spent: new SmoothedRates() };

  constructor(client: AnalyticsReader, namespace: NamespaceFields) {
    this.#client = client;
    this.#namespace = namespace;
  }

  /** The rates since the last reading, the highest of the last seconds first. */
  async refresh(): Promise<IdentifierRates> {
    const limit = ANALYTICS_IDENTIFIERS_MAX;
    const response = await this.#client.identifiers({ ...this.#namespace, limit });
    const [denied, spent] = [response.denied, response.spent].map(addUpCutOff);
    const last = this.#last;
    const now = { hour: response.start, atMs: monotonicMs() };
    this.#last = { ...now, denied: provenCounts(denied), spent: provenCounts(spent) };
    const rates = (items: ListedIdentifier[], name: 'denied' | 'spent') => {
      if (last === undefined) return items.map((item) => ({ ...item, perSecond: undefined }));
      const before = last.hour === now.hour ? last[name] : NO_COUNTS;
      const grown = growth(items, before, secondsBetween(last.atMs, now.atMs));
      const averages = this.#smoothed[name].update(
        grown.map((item) => [keyOf(item), item.perSecond]),
      );
      return grown
        .map((item, i) => ({ item, average: averages[i] }))
        .sort((a, b) => b.average - a.average || provenCount(b.item) - provenCount(a.item))
        .map(({ item }) => item);
    };
    const isComplete = response.complete;
    return { denied: rates(denied, 'denied'), spent: rates(spent, 'spent'), isComplete };
  }

  /** Forgets the last reading, for a server that may count anew. */
  reset(): void {
    this.#last = undefined;
  }
}

/** The rates by proven counts. That of an identifier that was not listed before is the lowest. */
function growth(
  items: readonly ListedIdentifier[],
  { counts, unlistedMax }: ProvenCounts,
  seconds: number,
) {
  return items.map((item) => {
    const before = counts.get(keyOf(item)) ?? unlistedMax;
    return { ...item, perSecond: perSecond(provenCount(item) - before, seconds) };
  });
}

function provenCounts(items: readonly ListedIdentifier[]): ProvenCounts {
  const isFull = items.length >= ANALYTICS_IDENTIFIERS_MAX;
  return {
    counts: new Map(items.map((item) => [keyOf(item), provenCount(item)])),
    unlistedMax: isFull ? Math.min(...items.map(provenCount)) : 0,
  };
}

/** Identifiers that are cut off may have the same beginning: nothing tells them apart. */
function addUpCutOff(items: readonly ListedIdentifier[]): ListedIdentifier[] {
  const sums = new Map<string, ListedIdentifier>();
  for (const item of items) {
    const { count, error } = sums.get(keyOf(item)) ?? { count: 0, error: 0 };
    sums.set(keyOf(item), { ...item, count: count + item.count, error: error + item.error });
  }
  return [...sums.values()];
}

function keyOf({ identifier, cutOff }: ListedIdentifier): string {
  return `${cutOff ? 'cut off' : 'whole'} ${identifier}`;
}

function provenCount({ count, error }: ListedIdentifier): number {
  return count - error;
}
