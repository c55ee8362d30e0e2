/** The answers to requests, by the settings that change them, with each engine. */

import { describe, expect, test } from 'vitest';
import { describeEngines, type EngineMode } from '../support/engine-modes.ts';
import { type Hits, type RlsServer, useRlsServer } from '../support/rls/rls-server.ts';
import {
  CASE_ENVIRONMENTS,
  caseFiles,
  casesWith,
  RLS_CASES,
  type RlsCaseSettings,
} from './cases.ts';

/** The least time that is left of a minute while a case runs. */
const MINUTE_LEFT_MS = 30_000;

const OTHER_SETTINGS = Object.keys(CASE_ENVIRONMENTS) as RlsCaseSettings[];

async function beginMinute(mode: EngineMode, server: RlsServer): Promise<void> {
  const leftMs = 60_000 - (server.nowMs() % 60_000);
  // Redis has a clock of its own: there, a minute may end in one of a hundred runs.
  if (mode !== 'redis' && leftMs < MINUTE_LEFT_MS) await server.stepClock(leftMs);
}

function describeCases(mode: EngineMode, settings: RlsCaseSettings, isCompatible: boolean): void {
  const server = useRlsServer({
    mode,
    files: caseFiles(settings),
    env: { WEIR_RLS_COMPATIBLE: String(isCompatible), ...CASE_ENVIRONMENTS[settings].weir },
  });
  const cases = casesWith(settings);
  for (const { name, domain, calls } of cases) {
    test(name, async () => {
      await beginMinute(mode, server);
      for (const { descriptors, hits = 0, answer, byDefault, ...call } of calls) {
        const expected = isCompatible ? answer : (byDefault ?? answer);
        const asked = call.domain ?? domain;
        if (!('metadata' in call)) {
          expect(await server.rls.ask(asked, descriptors, hits)).toEqual(expected);
          continue;
        }
        const { overall, statuses, metadata } = await server.rls.call(asked, descriptors, hits);
        expect([overall, ...statuses]).toEqual(expected);
        expect((metadata as { metadata?: unknown }).metadata).toEqual(call.metadata);
      }
    });
  }
  test('the hits of all cases are in the metrics', async () => {
    const hits: Hits = Object.assign({}, ...cases.map((it) => it.hits ?? {}));
    await server.expectHits(hits);
  });
}

describeEngines('decided %s,', (mode) => {
  describe('in compatible mode,', () => describeCases(mode, 'plain', true));
  describe('by default,', () => describeCases(mode, 'plain', false));
  for (const settings of OTHER_SETTINGS) {
    // The way of deciding matters only where one descriptor changes what is counted of another.
    if (settings === 'plain' || (mode === 'worker' && settings !== 'all-or-none')) continue;
    describe(`with the settings ${settings},`, () => describeCases(mode, settings, true));
  }
});

test('the cases have each of their numbers once', () => {
  const names = RLS_CASES.map(({ name, settings = 'plain' }) => `${name}, ${settings}`);
  expect(new Set(names).size).toBe(names.length);
});
