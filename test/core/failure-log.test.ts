import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { FailureLog } from '../../src/core/failure-log.ts';

describe('a log of a failure that repeats', () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  function recordLog() {
    const lines: unknown[] = [];
    const add = (...line: unknown[]) => lines.push(line);
    const failures = new FailureLog({ info: add, warn: add, error: add }, 'warn', 'it works again');
    return { lines, failures };
  }

  test('has a line at once, one with the count each minute, and one at the end', () => {
    const { lines, failures } = recordLog();
    for (let second = 0; second < 150; second++) {
      failures.failed({ error: 'ENOSPC', path: '/data' }, 'it failed');
      vi.advanceTimersByTime(1_000);
    }
    const line = (count: number) => {
      return [{ error: 'ENOSPC', path: '/data', failures: count }, 'it failed'];
    };
    expect(lines).toEqual([line(1), line(59), line(60)]);
    expect(failures.fault('/data', 'none')).toMatchObject({ error: 'ENOSPC', path: '/data' });
    failures.succeeded();
    failures.succeeded();
    expect(lines.slice(3)).toEqual([['it works again']]);
    expect(failures.fault('/data', 'none')).toBeUndefined();
  });

  test('has at most four lines a minute if the failure comes and goes', () => {
    const { lines, failures } = recordLog();
    for (let i = 0; i < 240; i++) {
      failures.failed({ error: 'ENOSPC' }, 'it failed');
      failures.succeeded();
      vi.advanceTimersByTime(500);
    }
    expect(lines.length).toBeLessThanOrEqual(8);
    vi.advanceTimersByTime(120_000);
    const { length } = lines;
    expect(lines.at(-1)).toEqual(['it works again']);
    vi.advanceTimersByTime(600_000);
    expect(lines.length).toBe(length);
  });

  test('begins again with a line at once after a minute without failures', () => {
    const { lines, failures } = recordLog();
    failures.failed({ error: 'a' }, 'it failed');
    failures.succeeded();
    vi.advanceTimersByTime(61_000);
    failures.failed({ error: 'b' }, 'it failed');
    expect(lines.at(-1)).toEqual([{ error: 'b', failures: 1 }, 'it failed']);
  });
});
