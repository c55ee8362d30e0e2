import fc from 'fast-check';
import pino from 'pino';
import { describe, expect, test } from 'vitest';
import { formatRecord } from '../../src/core/log-text.ts';

/** Characters that an editor, a terminal or a log shipper may interpret as the end of a line. */
const LINE_END = /[\n\r\v\f\u0085\u2028\u2029]/;

/** The output of a log with this text format. */
function written(write: (log: pino.Logger) => void, level = 'trace'): string {
  let text = '';
  const options = { level, base: null, timestamp: pino.stdTimeFunctions.isoTime };
  const destination = { write: (line: string) => (text += formatRecord(line)) };
  write(pino(options, destination));
  return text;
}

/** Parses the fields of a line. */
function fieldsIn(text: string): Record<string, unknown> {
  const fields = text.matchAll(/ ("(?:[^"\\]|\\.)*"|[^ "=]+)=("(?:[^"\\]|\\.)*"|[^ "]+)/g);
  const read = (token: string) => (token.startsWith('"') ? JSON.parse(token) : token);
  return Object.fromEntries([...fields].map(([, name, value]) => [read(name), read(value)]));
}

describe('a record as text', () => {
  test('has time, level, message and fields in one line', () => {
    const text = written((log) => {
      log.info({ url: 'http://127.0.0.1:7070', acceptors: 2, none: undefined }, 'serving');
      log.warn({ name: 'a b', nested: { a: [1] } }, 'fewer');
      log.error('plain');
    });
    const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z /gm;
    expect(text.match(time)).toHaveLength(3);
    expect(text.replace(time, '')).toBe(
      'INFO  serving url=http://127.0.0.1:7070 acceptors=2\n' +
        'WARN  fewer name="a b" nested={"a":[1]}\n' +
        'ERROR plain\n',
    );
  });

  test('is followed by the indented stack of an error', () => {
    const error = Object.assign(new Error('the disk\nis full'), { code: 'ENOSPC' });
    const [line, ...stack] = written((log) => log.warn({ err: error }, 'failed')).split('\n');
    expect(line).toContain(' WARN  failed error.type=Error error.message="the disk\\nis full"');
    expect(line).toContain(' error.code=ENOSPC');
    expect(stack.slice(0, 2)).toEqual(['    Error: the disk', '    is full']);
    expect(stack[2]).toMatch(/^ {4}at .*text\.test\.ts/);
    expect(stack.at(-1)).toBe('');
    const failure = { requestId: 'req_1', message: 'm', stack: 'Error: m\n    at f' };
    expect(written((log) => log.error(failure, 'a request failed'))).toMatch(
      / ERROR a request failed requestId=req_1 message=m\n {4}Error: m\n {4}at f\n$/,
    );
  });

  test('is one parsable line for every message, field and error', () => {
    const anyText = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.string({
        unit: fc.constantFrom(...'\n\r\v\f\0\x1b[31m\u0085\u2028\u2029\u202e\u061c"\\= a'),
      }),
    );
    const names = anyText.map((name) => `n${name}`);
    fc.assert(
      fc.property(anyText, fc.dictionary(names, anyText), anyText, (message, fields, reason) => {
        const text = written((log) => log.error({ ...fields, err: new Error(reason) }, message));
        const lines = text.slice(0, -1).split('\n');
        expect(text.at(-1)).toBe('\n');
        expect(lines.filter((line) => LINE_END.test(line))).toEqual([]);
        expect(lines[0]).toMatch(/^\d{4}-/);
        expect(lines.slice(1).filter((line) => !line.startsWith('    '))).toEqual([]);
        expect(/[\p{Cc}\p{Bidi_Control}]/u.test(lines.join(''))).toBe(false);
        // With a plain message, because a message may look like a field.
        const plain = written((log) => log.error({ ...fields, err: new Error(reason) }, 'm'));
        const { 'error.type': _, 'error.message': shown, ...read } = fieldsIn(plain.split('\n')[0]);
        expect([read, shown]).toEqual([fields, reason]);
      }),
    );
  });
});
