/** Acceptors that count identifiers, and the lists that the main thread makes of it. */

import { expect, test } from 'vitest';
import type { IdentifierLists } from '../../src/analytics/identifier-record.ts';
import { LiveSketches } from '../../src/analytics/live-sketches.ts';
import { IdentifierRecorder, type SketchAnnouncement } from '../../src/analytics/recorder.ts';
import { ANALYTICS_NAMESPACES_MAX, FIRST_LINE_OFFSET } from '../../src/core/constants.ts';
import { Hasher, newIdentity } from '../../src/core/hash.ts';
import type { Namespace } from '../../src/core/namespace.ts';
import { allocateControl, CONTROL, Control } from '../../src/shared-memory/control.ts';
import { testNamespace } from '../support/namespace.ts';

const HOUR = 498_660;
const hasher = new Hasher(Buffer.from('0123456789abcdef'));

class TestAcceptor {
  readonly announced: SketchAnnouncement[] = [];
  readonly #recorder: IdentifierRecorder;
  readonly #namespaces = new Map<string, Namespace>();
  readonly #identity = newIdentity();

  constructor(control: Control, sketches: LiveSketches) {
    this.#recorder = new IdentifierRecorder(control, (announcement) => {
      this.announced.push(announcement);
      sketches.add(announcement);
    });
  }

  record(namespace: string, identifier: string, cost = 1, isAllowed = true): void {
    const known = this.#namespace(namespace);
    const identity = hasher.hash(known.hashState, identifier, this.#identity);
    this.#recorder.recordText(known, identity, cost, isAllowed, identifier);
  }

  delete(name: string): void {
    const namespace = this.#namespace(name);
    this.#namespaces.delete(name);
    namespace.isTransient = true;
    this.#recorder.forget(namespace);
  }

  /** The namespaces that keep sketches in memory. */
  get namesWithSketches(): string[] {
    const all = [...this.#namespaces.values()];
    return all.filter(({ spentSketch }) => spentSketch !== undefined).map(({ name }) => name);
  }

  #namespace(name: string): Namespace {
    let namespace = this.#namespaces.get(name);
    if (namespace === undefined) {
      namespace = testNamespace(name);
      this.#namespaces.set(name, namespace);
    }
    return namespace;
  }
}

function open(acceptors: number, hour = HOUR) {
  const control = new Control(allocateControl(acceptors, 1));
  control.words[CONTROL.analyticsHour] = hour;
  const sketches = new LiveSketches();
  const all = Array.from({ length: acceptors }, () => new TestAcceptor(control, sketches));
  const lists = (namespace: string): IdentifierLists[] => {
    return sketches.of(namespace, 0, Number.POSITIVE_INFINITY).map((live) => live.lists);
  };
  return { control, sketches, acceptors: all, lists };
}

const short = ({ items }: IdentifierLists['denied']) => {
  return items.map(({ text, count, error }) => [text, count, error]);
};

test('denied checks and the tokens of allowed checks are added up over all acceptors', () => {
  const { acceptors, lists } = open(2);
  const [first, second] = acceptors;
  first.record('a', 'é', 3);
  first.record('a', 'é', 4, false);
  first.record('a', 'free', 0);
  second.record('a', 'é', 5);
  second.record('a', 'other', 9, false);
  second.record('b', 'é', 7);
  const [list] = lists('a');
  expect(short(list.spent)).toEqual([['é', 8, 0]]);
  expect(short(list.denied).sort()).toEqual([
    ['other', 1, 0],
    ['é', 1, 0],
  ]);
  expect([list.isComplete, list.spent.floor]).toEqual([true, 0]);
  expect(short(lists('b')[0].spent)).toEqual([['é', 7, 0]]);
});

test('a character that is cut off is left out, and leaves nothing in the next text', () => {
  const { acceptors, lists } = open(1);
  acceptors[0].record('a', `${'x'.repeat(95)}é`, 2);
  acceptors[0].record('a', 'y', 1);
  expect(short(lists('a')[0].spent)).toEqual([
    ['x'.repeat(95), 2, 0],
    ['y', 1, 0],
  ]);
});

test('each hour has sketches of its own, which are announced once', () => {
  const { control, sketches, acceptors, lists } = open(1);
  const [acceptor] = acceptors;
  acceptor.record('a', 'x', 2);
  acceptor.record('a', 'x', 2);
  control.words[CONTROL.analyticsHour] = HOUR + 1;
  acceptor.record('a', 'x', 5);
  const bytes = 256 * 1_024 + FIRST_LINE_OFFSET;
  expect(acceptor.announced.map(({ hour, buffer }) => [hour, buffer?.byteLength])).toEqual([
    [HOUR, bytes],
    [HOUR + 1, bytes],
  ]);
  expect(lists('a').map(({ spent }) => short(spent))).toEqual([[['x', 4, 0]], [['x', 5, 0]]]);
  expect(sketches.before(HOUR + 1).map(({ hour }) => hour)).toEqual([HOUR]);
  sketches.remove(HOUR + 1);
  expect(lists('a').map(({ spent }) => short(spent))).toEqual([[['x', 5, 0]]]);
});

test('namespaces beyond the maximum of an hour get no sketches, and their lists say so', () => {
  const { control, acceptors, lists } = open(1);
  const [acceptor] = acceptors;
  for (let i = 0; i <= ANALYTICS_NAMESPACES_MAX; i++) acceptor.record(`n${i}`, 'x');
  expect(acceptor.announced.filter(({ buffer }) => buffer === undefined).length).toBe(1);
  const [last] = lists(`n${ANALYTICS_NAMESPACES_MAX}`);
  expect([last.isComplete, last.spent.items]).toEqual([false, []]);
  control.words[CONTROL.analyticsHour] = HOUR + 1;
  acceptor.record(`n${ANALYTICS_NAMESPACES_MAX}`, 'x');
  expect(acceptor.announced.at(-1)?.buffer).toBeDefined();
});

test('namespaces that are created and deleted allocate no more in an hour than others', () => {
  const { control, acceptors } = open(1);
  const [acceptor] = acceptors;
  const allocated = () => acceptor.announced.filter(({ buffer }) => buffer !== undefined).length;
  for (let i = 0; i < 3 * ANALYTICS_NAMESPACES_MAX; i++) {
    acceptor.record(`n${i}`, 'x');
    acceptor.delete(`n${i}`);
  }
  expect(allocated()).toBe(ANALYTICS_NAMESPACES_MAX);
  control.words[CONTROL.analyticsHour] = HOUR + 1;
  acceptor.record('next', 'x');
  expect(allocated()).toBe(ANALYTICS_NAMESPACES_MAX + 1);
  expect(acceptor.namesWithSketches).toEqual(['next']);
});

test('an acceptor keeps no sketches of an earlier hour, so its memory is bounded', () => {
  const { control, acceptors } = open(1);
  const [acceptor] = acceptors;
  for (const name of ['a', 'b', 'c']) acceptor.record(name, 'x');
  control.words[CONTROL.analyticsHour] = HOUR + 1;
  acceptor.record('b', 'x');
  expect(acceptor.namesWithSketches).toEqual(['b']);
});

test('nothing is counted and no memory is allocated while analytics are off', () => {
  const { acceptors } = open(1, 0);
  acceptors[0].record('a', 'x');
  expect(acceptors[0].announced).toEqual([]);
});

test('all lists are written in turn, a part at a time, and each of them once', () => {
  const { sketches, acceptors } = open(1);
  for (let i = 0; i < 25; i++) acceptors[0].record(`n${i}`, 'x');
  const written = Array.from({ length: 10 }, () => sketches.nextPart(10).length);
  expect(written.reduce((sum, count) => sum + count, 0)).toBe(25);
  expect(Math.max(...written)).toBe(3);
});
