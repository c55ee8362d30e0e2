import { describe, expect, test } from 'vitest';
import {
  errorOfConnection,
  errorOfReply,
  parseRedirection,
  RedisError,
} from '../../src/redis/errors.ts';

describe('an error of a server', () => {
  test.each([
    ['LOADING Redis is loading the dataset in memory', 'loading'],
    [
      "READONLY You can't write against a read only replica. script: 1, on @user_script:1.",
      'readOnly',
    ],
    ["OOM command not allowed when used memory > 'maxmemory'.", 'outOfMemory'],
    ['NOAUTH Authentication required.', 'denied'],
    ['WRONGPASS invalid username-password pair or user is disabled.', 'denied'],
    ["NOPERM User weir has no permissions to run the 'info' command", 'denied'],
    ['MOVED 1 127.0.0.1:2', 'cluster'],
    ['ASK 1 127.0.0.1:2', 'cluster'],
    ['CLUSTERDOWN Hash slot not served', 'cluster'],
    ['TRYAGAIN Multiple keys request during rehashing of slot', 'cluster'],
    ["CROSSSLOT Keys in request don't hash to the same slot", 'cluster'],
    ['NOSCRIPT No matching script. Please use EVAL.', 'noScript'],
    ['MISCONF Errors writing to the AOF file: No space left on device', 'misconfigured'],
    ['NOREPLICAS Not enough good replicas to write.', 'misconfigured'],
    [
      "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
      'primaryDown',
    ],
    ['BUSY Redis is busy running a script.', 'busy'],
    ['UNKILLABLE Sorry the script already executed write commands.', 'busy'],
    ['ERR unknown command', 'rejected'],
    ['', 'rejected'],
    ['constructor', 'rejected'],
  ])('has the kind of its first word: %s', (reply, kind) => {
    const error = errorOfReply('a:1', reply);
    expect(error.kind).toBe(kind);
    expect(error.message).toBe(`a:1: ${reply}`);
    // A refused command has changed nothing. A script may fail after its first change.
    expect(error.mayHaveRun).toBe(kind === 'rejected');
  });
});

describe('a failure of a connection', () => {
  test('has a message also if the error of Node has none', () => {
    const refused = Object.assign(new AggregateError([]), { code: 'ECONNREFUSED' });
    expect(errorOfConnection('a:1', refused).message).toBe('a:1: ECONNREFUSED');
    expect(errorOfConnection('a:1', 'text').message).toBe('a:1: text');
    const known = new RedisError('timeout', 'late');
    expect(errorOfConnection('a:1', known)).toBe(known);
  });
});

describe('a redirection', () => {
  const parse = (reply: string) => parseRedirection(errorOfReply('a:1', reply));

  test('names the slot and the node', () => {
    expect(parse('MOVED 7 10.0.0.1:2')).toEqual({
      ...{ kind: 'MOVED', slot: 7, host: '10.0.0.1', port: 2 },
    });
    expect(parse('ASK 7 ::1:2')).toEqual({ kind: 'ASK', slot: 7, host: '::1', port: 2 });
    expect(parse('MOVED 7 :2')).toEqual({ kind: 'MOVED', slot: 7, host: '', port: 2 });
  });

  test.each(['TRYAGAIN', 'MOVED 7', 'MOVED x a:1', 'MOVED 7 ?:1', 'MOVED 7 a:b', 'ERR'])(
    'is not in %j',
    (reply) => {
      expect(parse(reply)).toBeUndefined();
    },
  );
});
