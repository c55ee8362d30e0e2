/** Random operations on a table of few records, beside plain objects. */

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ENDED_HOLD_MS } from '../../../src/core/constants.ts';
import { RULE } from '../../../src/core/window-rules.ts';
import { HOLD_KIND, type HoldId } from '../../../src/engine/hold-id.ts';
import type { HoldTable, NewHold } from '../../../src/engine/holds/hold-table.ts';
import {
  AT,
  HOLD_FLAG,
  HOLD_STATE,
  NONE,
  RECORD,
  RECORD_DOUBLE,
  referenceOf,
} from '../../../src/engine/holds/layout.ts';
import { rebuild } from '../../../src/engine/holds/rebuild.ts';
import { groupOfIdentity } from '../../../src/engine/table/group.ts';
import { trialCount } from '../../support/guarantees.ts';
import {
  copyHoldTable,
  endedOrder,
  expectConsistent,
  HOLDS_SHARD,
  holdIdentity,
  newHoldTable,
} from '../../support/hold-tables.ts';

const GROUPS = 2;
const START_MS = 1_700_000_000_000;
/** The first three have one bucket, and the last has another group. */
const IDENTITIES = [
  holdIdentity(0, GROUPS, 0, 1),
  holdIdentity(0, GROUPS, 0, 2),
  holdIdentity(0, GROUPS, 4, 1),
  holdIdentity(0, GROUPS, 1, 1),
  holdIdentity(1, GROUPS, 0, 1),
];

function holdOf(terms: Partial<NewHold> = {}): NewHold {
  return {
    ...{ isLease: false, identity: IDENTITIES[0], namespace: [11, -12], rule: RULE.sliding },
    ...{ durationMs: 60_000, window: 28_333_333, limit: 100, amount: 5 },
    ...{ expiresAt: START_MS + 1_000, ...terms },
  };
}

interface ModelHold extends NewHold {
  id: HoldId;
  state: number;
  endedAt: number;
}

/** The holds of a table. One that the table has forgotten is not in it. */
class Model {
  readonly capacity: number;
  holds: ModelHold[] = [];
  /** Of all holds that there were. */
  readonly ids: HoldId[] = [];

  constructor(capacity: number) {
    this.capacity = capacity;
  }

  get live(): ModelHold[] {
    return this.holds.filter(({ state }) => state === HOLD_STATE.live);
  }

  get ended(): ModelHold[] {
    return this.holds
      .filter(({ state }) => state !== HOLD_STATE.live)
      .toSorted((a, b) => a.endedAt - b.endedAt);
  }

  /** The hold whose record the next one gets; undefined: one that was never used. */
  replaced(nowMs: number): ModelHold | undefined {
    const [oldest] = this.ended;
    const isFull = this.holds.length === this.capacity;
    return isFull || oldest?.endedAt + ENDED_HOLD_MS <= nowMs ? oldest : undefined;
  }

  add(hold: NewHold, id: HoldId, nowMs: number): void {
    const replaced = this.replaced(nowMs);
    expect(id.record).toBe(replaced?.id.record ?? this.holds.length + 1);
    this.holds = this.holds.filter((hold) => hold !== replaced);
    this.holds.push({ ...hold, id, state: HOLD_STATE.live, endedAt: 0 });
    this.ids.push(id);
  }

  expectAnswers(table: HoldTable, nowMs: number): void {
    const { memory } = table;
    const { words } = memory;
    expect(table.room).toBe(this.capacity - this.live.length);
    for (const id of this.ids) {
      const hold = this.holds.find((hold) => hold.id === id);
      const isKnown =
        hold !== undefined &&
        (hold.state === HOLD_STATE.live || nowMs < hold.endedAt + ENDED_HOLD_MS);
      expect(table.find(id, nowMs)).toBe(isKnown ? id.record : NONE);
      if (hold !== undefined) expectRecord(table, hold);
    }
    for (const identity of IDENTITIES) {
      const own = this.holds.filter((hold) => hold.identity === identity);
      const live = own.filter(({ state }) => state === HOLD_STATE.live);
      const counter = table.findCounter(identity);
      expect(counter === NONE).toBe(own.length === 0);
      const leases = live.filter(({ isLease }) => isLease);
      expect(table.inUse(counter)).toBe(leases.reduce((sum, { amount }) => sum + amount, 0));
      expectSame(table.liveOf(counter), live);
    }
    for (let group = 0; group < GROUPS; group++) {
      const own = this.holds.filter(({ identity }) => groupOfIdentity(identity, GROUPS) === group);
      expectSame(table.recordsOfGroup(group), own);
    }
    expect(endedOrder(table)).toEqual(this.ended.map(({ id }) => id.record));
    const leases = this.live.filter(({ isLease }) => isLease);
    expect([words[AT.queueLength], words[AT.liveLeases]]).toEqual([
      this.live.length,
      leases.length,
    ]);
  }
}

function expectSame(records: Iterable<number>, holds: readonly ModelHold[]): void {
  const numbers = holds.map(({ id }) => id.record);
  expect([...records].toSorted((a, b) => a - b)).toEqual(numbers.toSorted((a, b) => a - b));
}

function expectRecord(table: HoldTable, hold: ModelHold): void {
  const { memory } = table;
  const { record } = hold.id;
  const fields = ['durationMs', 'window', 'limit', 'amount', 'expiresAt', 'endedAt'] as const;
  for (const field of fields) {
    expect(memory.double(record, RECORD_DOUBLE[field])).toBe(hold[field]);
  }
  expect(memory.word(record, RECORD.state)).toBe(hold.state);
  expect(table.ruleOf(record)).toBe(hold.rule);
}

const command = fc.record({
  kind: fc.constantFrom(
    ...(['add', 'add', 'add', 'end', 'end', 'expire', 'extend'] as const),
    ...(['pass', 'rebuild'] as const),
  ),
  which: fc.nat(1_000),
  identity: fc.nat(IDENTITIES.length - 1),
  isLease: fc.boolean(),
  amount: fc.nat(1_000),
  ttlMs: fc.nat(100),
  passedMs: fc.constantFrom(1, 30, ENDED_HOLD_MS / 2, ENDED_HOLD_MS - 1, ENDED_HOLD_MS),
});

describe('a table of holds', () => {
  test('answers as a list of its holds, and as itself after a rebuild', () => {
    const seen = { full: 0, forgotten: 0, early: 0, rebuilt: 0 };
    const property = fc.property(
      fc.constantFrom(16, 32),
      fc.array(command, { maxLength: 80, size: 'max' }),
      (size, commands) => {
        const table = newHoldTable(size, GROUPS);
        const model = new Model(table.memory.capacity);
        let now = START_MS;
        const end = (hold: ModelHold | undefined, state: number) => {
          if (hold === undefined) return;
          now++;
          table.end(hold.id.record, state, now);
          Object.assign(hold, { state, endedAt: now });
        };
        for (const { kind, which, identity, ttlMs, passedMs, ...terms } of commands) {
          const hold = model.live[which % model.live.length];
          const expiresAt = now + ttlMs;
          if (kind === 'pass') now += passedMs;
          else if (kind === 'end') end(hold, HOLD_STATE.ended);
          else if (kind === 'expire') {
            const { first } = table.queue;
            const firstHold = model.live.find(({ id }) => id.record === first);
            expect(firstHold?.expiresAt ?? Number.POSITIVE_INFINITY).toBe(table.queue.firstMs);
            end(firstHold, HOLD_STATE.expired);
          } else if (kind === 'extend' && hold !== undefined) {
            table.extend(hold.id.record, expiresAt);
            hold.expiresAt = expiresAt;
          } else if (kind === 'rebuild') {
            rebuild(table);
            seen.rebuilt++;
          } else if (kind === 'add' && table.room === 0) seen.full++;
          else if (kind === 'add') {
            if (model.holds.length === model.capacity) seen.forgotten++;
            else if (model.replaced(now) !== undefined) seen.early++;
            const hold = holdOf({ ...terms, identity: IDENTITIES[identity], expiresAt });
            const id = table.add(hold, now);
            expect(id).toMatchObject({
              kind: hold.isLease ? HOLD_KIND.lease : HOLD_KIND.reservation,
              shard: HOLDS_SHARD,
            });
            model.add(hold, id, now);
          }
          model.expectAnswers(table, now);
        }
        expectConsistent(table);
        const copy = copyHoldTable(table);
        rebuild(copy);
        model.expectAnswers(copy, now);
        expectConsistent(copy);
      },
    );
    fc.assert(property, { numRuns: trialCount(40, 3_000) });
    for (const times of Object.values(seen)) expect(times).toBeGreaterThan(0);
  });

  test('finds a hold by its id alone', () => {
    const table = newHoldTable(16, GROUPS);
    const id = table.add(holdOf(), START_MS);
    const { secret, record } = id;
    expect(table.find(id, START_MS)).toBe(record);
    const others: Partial<HoldId>[] = [
      { kind: HOLD_KIND.lease },
      { record: 0 },
      { record: record + 1 },
      { record: table.memory.capacity + 1 },
      { record: 2 ** 28 - 1 },
      ...[0, 1, 2].map((word) => ({ secret: secret.with(word, secret[word] ^ 1) as never })),
    ];
    for (const other of others) expect(table.find({ ...id, ...other }, START_MS)).toBe(NONE);
  });

  test('does not find a record that was freed and used again by its old id', () => {
    const table = newHoldTable(16, GROUPS);
    const { capacity } = table.memory;
    const ids = Array.from({ length: capacity }, () => table.add(holdOf(), START_MS));
    expect(table.room).toBe(0);
    table.end(ids[2].record, HOLD_STATE.ended, START_MS);
    table.end(ids[0].record, HOLD_STATE.expired, START_MS + 1);
    expect(table.find(ids[2], START_MS + 1)).toBe(ids[2].record);
    const first = table.add(holdOf({ isLease: true }), START_MS);
    expect(first.record).toBe(ids[2].record);
    expect([table.find(ids[2], START_MS + 1), table.find(ids[0], START_MS + 1)]).toEqual([
      NONE,
      ids[0].record,
    ]);
    const second = table.add(holdOf(), START_MS);
    expect(second.record).toBe(ids[0].record);
    expect(table.find(ids[0], START_MS + 1)).toBe(NONE);
    expect(table.room).toBe(0);
  });

  test('knows a hold that has ended for ten minutes', () => {
    const table = newHoldTable(16, GROUPS);
    const id = table.add(holdOf(), START_MS);
    table.end(id.record, HOLD_STATE.ended, START_MS);
    expect(ENDED_HOLD_MS).toBe(600_000);
    expect(table.find(id, START_MS + ENDED_HOLD_MS - 1)).toBe(id.record);
    expect(table.find(id, START_MS + ENDED_HOLD_MS)).toBe(NONE);
  });

  test('uses a record again before a new one, once its hold is unknown', () => {
    const table = newHoldTable(16, GROUPS);
    const [old] = [table.add(holdOf(), START_MS), table.add(holdOf(), START_MS)];
    table.end(old.record, HOLD_STATE.ended, START_MS);
    const knownMs = START_MS + ENDED_HOLD_MS - 1;
    expect(table.add(holdOf(), knownMs).record).toBe(3);
    expect(table.find(old, knownMs)).toBe(old.record);
    expect(table.add(holdOf(), knownMs + 1).record).toBe(old.record);
    expect(table.memory.words[AT.used]).toBe(3);
    expectConsistent(table);
  });

  test('uses the free records of a rebuild before a new one', () => {
    const table = newHoldTable(16, GROUPS);
    for (let number = 0; number < 3; number++) table.add(holdOf(), START_MS);
    // As a thread leaves it that dies before it has written its record.
    table.memory.setWord(2, RECORD.state, HOLD_STATE.free);
    rebuild(table);
    expectConsistent(table);
    expect([1, 2].map(() => table.add(holdOf(), START_MS).record)).toEqual([2, 4]);
    expectConsistent(table);
  });

  test('finds a member of a list as such alone, by the secret of the list', () => {
    const table = newHoldTable(16, GROUPS);
    const secret = [1, -2, 3] as const;
    const member = table.add(holdOf({ isMember: true }), START_MS, secret);
    const nextOfList = referenceOf(HOLDS_SHARD, member.record);
    const first = table.add(holdOf({ nextOfList, rule: RULE.gcra }), START_MS, secret);
    expect([first.secret, table.secretOf(member.record)]).toEqual([secret, secret]);
    expect([table.nextOfList(first), table.nextOfList(member)]).toEqual([nextOfList, NONE]);
    const isMember = true;
    expect(table.find(first, START_MS)).toBe(first.record);
    expect(table.find({ ...first, isMember }, START_MS)).toBe(NONE);
    expect(table.find(member, START_MS)).toBe(NONE);
    expect(table.find({ ...member, isMember }, START_MS)).toBe(member.record);
    expect([first, member].map(({ record }) => table.ruleOf(record))).toEqual([
      RULE.gcra,
      RULE.sliding,
    ]);
    for (const record of [0, table.memory.capacity + 1, 2 ** 28 - 1]) {
      expect(table.nextOfList({ ...first, record })).toBe(NONE);
    }
  });

  test('keeps the flags, and what a hold has charged and released, in a rebuild', () => {
    const table = newHoldTable(16, GROUPS);
    const { memory } = table;
    const { record } = table.add(holdOf({ amount: 5 }), START_MS);
    expect(memory.double(record, RECORD_DOUBLE.charged)).toBe(5);
    expect(memory.double(record, RECORD_DOUBLE.released)).toBe(0);
    table.setFlag(record, HOLD_FLAG.voided);
    memory.setDouble(record, RECORD_DOUBLE.charged, 2);
    memory.setDouble(record, RECORD_DOUBLE.released, 3);
    const before = memory.words.slice(memory.record(record), memory.record(record) + 32);
    rebuild(table);
    expect(memory.words.slice(memory.record(record), memory.record(record) + 32)).toEqual(before);
    expect([table.isLease(record), table.hasFlag(record, HOLD_FLAG.voided)]).toEqual([false, true]);
  });

  test('has sums that are exact again when no hold is live, however large they were', () => {
    const table = newHoldTable(16, GROUPS);
    const amounts = [2 ** 53 - 1, 2 ** 53 - 1, 1, 3];
    const ids = amounts.map((amount) => table.add(holdOf({ amount }), START_MS));
    for (const id of ids) table.end(id.record, HOLD_STATE.ended, START_MS);
    expectConsistent(table);
  });

  test('has a time that does not run back, and says that it has changed', () => {
    const table = newHoldTable(16, GROUPS);
    const { words } = table.memory;
    expect(words[AT.changed]).toBe(0);
    expect(table.advanceTime(START_MS)).toBe(START_MS);
    words[AT.changed] = 0;
    expect(table.advanceTime(START_MS - 1)).toBe(START_MS);
    expect(words[AT.changed]).toBe(1);
    expect(table.advanceTime(START_MS + 1)).toBe(START_MS + 1);
  });
});
