import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeExchange, encodeExchange } from '../../../../src/engine/redis/scripts/exchange.ts';
import { KeySpace } from '../../../../src/engine/redis/scripts/keys.ts';
import { decodeMemberMessage } from '../../../../src/engine/redis/scripts/member-messages.ts';
import {
  type CounterMessage,
  NO_WINDOW,
  SERVED,
} from '../../../../src/engine/redis/scripts/protocol.ts';
import { InvalidReply } from '../../../../src/engine/redis/scripts/reply.ts';

const check = { cost: 1, limit: 10, isSliding: false, countsDenied: false };
const message: CounterMessage = {
  ...{
    identity: { h0: 1, h1: -2, h2: 3, h3: 4 },
    durationMs: 60_000,
    window: 7,
    spent: 0,
    previousSpent: 0,
    kept: 0,
  },
  ...{ hasPrevious: false, sequence: 5, firstSequence: 1, rate: 0, lastLimit: 0 },
  ...{ wantsLease: false, isSliding: false, isStored: false, recalls: false },
  ...{ others: 0, previousKnown: 0, report: 0, inherits: 0 },
  ...{ refund: 0, refundWindow: NO_WINDOW, checks: [check, check] },
};
const VERDICTS: readonly number[] = Object.values(SERVED);
const EPOCH = `${'a'.repeat(40)}.12`;
const HEADER = `0 1700000000000000 ${EPOCH} 0 3 2 0 0`;
const COUNTER = '5 0 8 1000 1 4 6 0 0 0 s12';

describe('a reply to the exchange script', () => {
  it('is taken if it is exactly what the script answers', () => {
    const answer = decodeExchange([message], [HEADER, COUNTER]);
    expect(answer).toMatchObject({ status: 0, epoch: EPOCH, membersVersion: 3, machineCount: 2 });
    expect(answer.counters).toMatchObject([
      { window: 8, isStored: true, mayDeny: false, others: 4, othersDeducted: 6, lent: 0 },
    ]);
    expect(answer.counters[0].served).toEqual([1, 2]);
    expect(answer).toMatchObject({ openedUs: 0, aheadUs: 0 });
    const opened = decodeExchange([message], [HEADER.replace(/0 0$/, '17 5'), COUNTER]);
    expect(opened).toMatchObject({ openedUs: 17, aheadUs: 5 });
    const short = decodeExchange([message], [HEADER.replace(/ 0 0$/, ''), COUNTER]);
    expect(short).toEqual(answer);
    const early = decodeExchange([message], [HEADER.replace('0', '1')]);
    expect(early).toMatchObject({ status: 1, counters: [] });
    expect(decodeExchange([message], [HEADER, '5 2']).counters[0].status).toBe(2);
    const shared = COUNTER.replace('1000 1', '1000 807').replace('s12', 's13');
    const wanted = decodeExchange([{ ...message, wantsLease: true }], [HEADER, shared]);
    expect(wanted.counters).toMatchObject([{ mayDeny: true, pauseMs: 201, served: [1, 3] }]);
    const rest = decodeExchange([message], [HEADER, `${COUNTER} 9 8 1 5 1700000000000000`]);
    expect(rest.counters[0]).toMatchObject({
      ...{ previousUsage: 9, previousKnownUsage: 8, writtenOff: 1, report: 1_700_000_000_000_000 },
      ...{ isUnknown: true, isMissing: false, wasWrittenOff: true },
    });
  });

  it.each([
    ['no list', 'OK'],
    ['null', null],
    ['an empty list', []],
    ['numbers', [1, 2]],
    ['no counter', [HEADER]],
    ['a counter too many', [HEADER, COUNTER, COUNTER]],
    ['counters of a call that did nothing', [HEADER.replace('0', '2'), COUNTER]],
    ['an unknown status', [HEADER.replace('0', '3')]],
    ['a clock in exponent form', [HEADER.replace('1700000000000000', '1.7e15'), COUNTER]],
    ['another epoch', [HEADER.replace('aa', 'AA'), COUNTER]],
    ['a field too many', [`${HEADER} 1`, COUNTER]],
    ['an unknown state', [HEADER, `${COUNTER} 9 8 1 8 0`]],
    ['an unknown flag', [HEADER, COUNTER.replace('1000 1', '1000 4')]],
    ['the answer to another message', [HEADER, COUNTER.replace('5', '6')]],
    ['a window that has ended', [HEADER, COUNTER.replace('8', '6')]],
    ['more time than a window has', [HEADER, COUNTER.replace('1000', '60000001')]],
    ['a lease that was not wanted', [HEADER, COUNTER.replace('6 0', '6 3')]],
    ['a refund that was not wanted', [HEADER, COUNTER.replace('0 s', '1 s')]],
    ['a number that is not exact', [HEADER, COUNTER.replace(' 4 ', ' 9007199254740992 ')]],
    ['a fraction', [HEADER, COUNTER.replace(' 4 ', ' 4.5 ')]],
    ['a negative zero', [HEADER, COUNTER.replace(' 4 ', ' -0 ')]],
    ['an empty field', [HEADER, COUNTER.replace(' 4 ', '  ')]],
    ['too few verdicts', [HEADER, COUNTER.replace('s12', 's1')]],
    ['too many verdicts', [HEADER, COUNTER.replace('s12', 's111')]],
    ['an unknown verdict', [HEADER, COUNTER.replace('s12', 's14')]],
    ['more than the script tells', [HEADER, `${COUNTER} 1 1 1 1`]],
    ['less than the script tells', [HEADER, `${COUNTER} 1`]],
  ])('is refused if it is %s', (_, reply) => {
    expect(() => decodeExchange([message], reply)).toThrow(InvalidReply);
  });

  it('is refused, never taken in part, whatever is changed in it', () => {
    const text = `${HEADER}\n${COUNTER}`;
    const property = fc.property(
      fc.nat({ max: text.length - 1 }),
      fc.nat({ max: 3 }),
      fc.string({ maxLength: 3 }),
      (at, length, put) => {
        const changed = text.slice(0, at) + put + text.slice(at + length);
        try {
          const { counters, status } = decodeExchange([message], changed.split('\n'));
          expect(counters.length).toBe(status === 0 ? 1 : 0);
          for (const { lent, refunded, served } of counters) {
            expect([lent, refunded]).toEqual([0, 0]);
            expect(served.every((one) => VERDICTS.includes(one))).toBe(true);
          }
        } catch (error) {
          expect(error).toBeInstanceOf(InvalidReply);
        }
      },
    );
    fc.assert(property, { numRuns: 1_000, examples: [[text.length - 1, 1, '3']] });
  });
});

describe('a call of the exchange script', () => {
  const context = { keys: new KeySpace('weir', true), isAvailable: false };
  const header = { member: 'm', reportedEpoch: '', membersVersion: 0, clockUs: 0 };

  it('is for counters of one bucket, at most 16, with exact numbers', () => {
    const encode = (messages: CounterMessage[]) => encodeExchange(context, 4, header, messages);
    expect(encode([message]).keys).toHaveLength(2);
    const elsewhere = { ...message, identity: { ...message.identity, h3: 5 } };
    expect(() => encode([elsewhere])).toThrow('bucket');
    expect(() => encode(Array(17).fill(message))).toThrow('17 messages');
    expect(() => encode([{ ...message, spent: 2 ** 53 }])).toThrow('exact integer');
    expect(() => encode([{ ...message, kept: 0.5 }])).toThrow('exact integer');
  });
});

describe('a message to a member', () => {
  const hex = `${'0'.repeat(31)}1`;
  const counter = { identity: { h0: 0, h1: 0, h2: 0, h3: 1 }, durationMs: 60_000 };

  it('is taken if a script publishes it', () => {
    expect(decodeMemberMessage(`recall ${hex} 60000 7 2`)).toEqual({ ...counter, kind: 'recall' });
    const report = { ...counter, kind: 'report', report: 2 };
    expect(decodeMemberMessage(`report ${hex} 60000 7 2`)).toEqual(report);
    expect(decodeMemberMessage(`wake ${hex} 60000 7`)).toEqual({ ...counter, kind: 'wake' });
    expect(decodeMemberMessage(`reset ${hex} 60000 7`)).toEqual({ ...counter, kind: 'reset' });
    expect(decodeMemberMessage(`epoch ${EPOCH}`)).toEqual({ kind: 'epoch', epoch: EPOCH });
  });

  it.each(['', 'later', `later ${hex} 60000 7`, 'toString'])(
    'is ignored if a later version may have published it: "%s"',
    (text) => {
      expect(decodeMemberMessage(text)).toBeUndefined();
    },
  );

  it.each(['wake', `wake ${hex}`, `wake ${hex} 60000 7 2`, `recall ${hex} 60000 7`, 'epoch 1'])(
    'is refused if it is "%s"',
    (text) => {
      expect(() => decodeMemberMessage(text)).toThrow(InvalidReply);
    },
  );
});
