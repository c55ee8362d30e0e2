/** Pages that are right and pages that are wrong: what the test of the pages finds. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { removeDirectory, temporaryDirectory } from '../../support/server.ts';
import { describeDifference } from './page-output.ts';
import { canRunPages, PageRunner } from './page-runner.ts';
import { PageError, stepsOf } from './page-steps.ts';

const fence = (language: string, ...lines: string[]) => {
  return `\n\`\`\`${language}\n${lines.join('\n')}\n\`\`\`\n`;
};
const sh = (...lines: string[]) => fence('sh', ...lines);
const text = (...lines: string[]) => fence('text', ...lines);

/** Long enough for a busy machine. Only a page whose test is that it times out has a shorter one. */
const TIMEOUTS = { runMs: 30_000, startMs: 30_000 };
const SHORT = { runMs: 300 };
const SHORT_START = { startMs: 300 };

interface FollowOptions {
  timeouts?: Partial<typeof TIMEOUTS>;
  /** Looks at the directory after the last step. */
  inspect?: (directory: string) => void;
}

/** Follows a page in an empty directory. */
async function follow(page: string, { timeouts, inspect }: FollowOptions = {}): Promise<void> {
  const directory = temporaryDirectory();
  const runner = await PageRunner.open(directory, { ...TIMEOUTS, ...timeouts });
  try {
    for (const step of stepsOf(page)) await runner.follow(step);
    runner.finish();
    inspect?.(directory);
  } finally {
    runner.close();
    removeDirectory(directory);
  }
}

/** A command that runs until Ctrl-C, with the output that the page shows. */
const until = (command: string, ...shown: string[]) => {
  return `<!-- runs until Ctrl-C -->\n${sh(command)}${text(...shown)}`;
};

/** Waits, with a variable of `page-terminal.sh`, until the first block of a page has ended. */
const UNTIL_ENDED = 'until test -e "$blocks/0.ended"; do sleep 0.05; done';

describe.skipIf(!canRunPages())('a page', () => {
  test('is followed in one terminal, which keeps directory and variables', async () => {
    const page = [
      '# Page\n',
      sh('mkdir -p here && cd here', 'export NAME=value'),
      sh('echo "$NAME" > file', 'pwd | sed "s#.*/##"'),
      text('here'),
      'Save this as `weir.json`:\n',
      '<!-- file: weir.json -->',
      fence('json', '{ "port": 7080 }'),
      sh('cat weir.json'),
      fence('json', '{"port":7080}'),
    ];
    const inspect = (directory: string) => {
      expect(readFileSync(join(directory, 'here/file'), 'utf8')).toBe('value\n');
    };
    await follow(page.join('\n'), { inspect });
  });

  test('may start commands that Ctrl-C stops, and use what they print', async () => {
    const server = `node -e 'console.log("key\\nexport KEY=" + process.pid);
      require("http").createServer((_, res) => res.end("hello\\n")).listen(7070, "127.0.0.1");
      process.on("SIGINT", () => process.exit(0))'`;
    const page = [
      '<!-- runs until Ctrl-C; listens on 7070 -->',
      sh(server),
      sh('export KEY=…', 'test "$KEY" -gt 1', 'curl -i http://127.0.0.1:7070/'),
      fence('http', 'HTTP/1.1 200 OK', 'content-length: 6', '', 'hello'),
      '<!-- Ctrl-C -->',
      '<!-- exits with 7 -->',
      sh('curl -s http://127.0.0.1:7070/'),
      '<!-- runs until Ctrl-C -->',
      sh('echo first', 'echo second && sleep 60'),
      text('first'),
      '<!-- Ctrl-C: sleep -->',
    ];
    await follow(page.join('\n'));
  });

  test('waits for a command that listens for a moment, and again when it is ready', async () => {
    const server = `node -e 'const { createServer } = require("http");
      const probe = createServer().listen(7070, () => setTimeout(() => probe.close(start), 30));
      const answer = (_, response) => response.end("hello");
      const start = () => setTimeout(() => createServer(answer).listen(7070), 1_000)'`;
    const page = [
      '<!-- runs until Ctrl-C; listens on 7070 -->',
      sh(server),
      sh('curl -s http://127.0.0.1:7070/'),
      text('hello'),
      '<!-- Ctrl-C -->',
    ];
    await follow(page.join('\n'));
  });

  test('shows what other commands print when one fails', async () => {
    const page = until('echo cause; sleep 60', 'cause') + sh('false');
    await expect(follow(page)).rejects.toThrow(/still runs: .*\ncause/);
  });

  test.each<[string, string, RegExp, Partial<typeof TIMEOUTS>?]>([
    ['prints something else', `${sh('echo 10')}${text('9')}`, /shows as output\n9\n.*\n10/s],
    ['fails', sh('false'), /exit code 1, expected 0; false: exit code 1/],
    ['fails in the middle', sh('false', 'true'), /exit code 0, expected 0; false: exit code 1/],
    ['should fail and does not', `<!-- exits with 1 -->\n${sh('true')}`, /code 0, expected 1/],
    ['fails twice', `<!-- exits with 1 -->\n${sh('false', 'false')}`, /false.*; false/],
    ['does not end', sh('sleep 60'), /timed out after 300 ms/, SHORT],
    ['does not exist', sh('no-such-command'), /exit code 127.*not found/s],
    ['ends by itself', until('true', 'a'), /ended by itself/],
    [
      'ends before Ctrl-C',
      `${until('echo a', 'a')}${sh(UNTIL_ENDED)}<!-- Ctrl-C -->`,
      /ended by itself/,
    ],
    [
      'does not listen',
      `<!-- runs until Ctrl-C; listens on 7070 -->\n${sh('sleep 60')}`,
      /does not listen on 7070/,
      SHORT_START,
    ],
    ['does not print it', until('echo a; sleep 60', 'b'), /shows as output\nb/, SHORT_START],
    ['is never stopped', until('echo a; sleep 60', 'a'), /does not stop: echo a; sleep 60/],
    ['stops nothing', '<!-- Ctrl-C: npm start -->', /no command that contains "npm start" runs/],
    ['uses a line that is not printed', sh('export KEY=…'), /no output has a line .* export KEY=/],
    ['reaches the network', sh('curl -s http://192.0.2.1/'), /exit code 7/],
  ])('fails if its command %s', async (_, page, message, timeouts = {}) => {
    await expect(follow(page, { timeouts })).rejects.toThrow(message);
  });
});

describe('the steps of a page', () => {
  const kinds = (page: string) => stepsOf(page).map(({ kind }) => kind);

  test('are the fences of the shell, with the next output of the same section', () => {
    const page = `# A\n${sh('one')}It prints:\n${text('1')}${text('a drawing')}${sh('two')}`;
    expect(stepsOf(page)).toEqual([
      { kind: 'section', line: 1, printsCounts: false },
      { kind: 'run', line: 3, script: 'one', exitCode: 0, output: { format: 'text', text: '1' } },
      { kind: 'run', line: 16, script: 'two', exitCode: 0 },
    ]);
    expect(kinds(`${sh('one')}# B\n${text('1')}`)).toEqual(['run', 'section']);
    expect(stepsOf(`${sh('one')}\n# B\n${text('1')}`)[0]).not.toHaveProperty('output');
    expect(stepsOf(`${sh('one')}${fence('ts', 'x')}${text('1')}`)[0]).not.toHaveProperty('output');
  });

  test('say which fence is not run, and why', () => {
    const [step] = stepsOf(`<!-- not run: needs a certificate -->\n${sh('one')}`);
    expect(step).toMatchObject({ kind: 'run', notRun: 'needs a certificate' });
  });

  test.each([
    ['another name of the shell', fence('bash', 'ls')],
    ['a fence without a language', fence('', 'ls')],
    ['a prompt', sh('$ ls')],
    ['a fence in a list', '- item\n\n  ```sh\n  ls\n  ```\n'],
    ['an unknown direction', `<!-- does not run: x -->\n${sh('ls')}`],
    ['a direction far from its fence', `<!-- exits with 1 -->\n\nText.\n${sh('ls')}`],
    ['a direction without a fence', '<!-- exits with 1 -->'],
    ['a direction before a fence of another language', `<!-- exits with 1 -->\n${text('1')}`],
    ['a file that the text does not name', `Save it.\n\n<!-- file: a.json -->\n${text('1')}`],
  ])('cannot be read from a page with %s', (_, page) => {
    expect(() => stepsOf(page)).toThrow(PageError);
  });
});

describe('the output of a command', () => {
  const RESPONSE = 'HTTP/1.1 200 OK\nRateLimit: "a";r=9;t=4';
  const differs = (format: 'json' | 'text' | 'http', shown: string, printed: string) => {
    return describeDifference({ format, text: shown }, printed) !== undefined;
  };

  test.each([
    ['json', '{"success":true,"reset":1795179600000}', '{"success":true,"reset":1795179660000}\n'],
    ['json', '{"meta":{"requestId":"req_732be561_0"}}', '{"meta":{"requestId":"req_99999999_3"}}'],
    ['json', '{"a":"…","b":[1,2]}', '{"b":[1,2],"a":{"c":1}}'],
    ['json', '{"a":1}\n{"a":2}', '{"a":1}\n{"a":2}\n'],
    ['text', 'allowed: remaining 9, resets in 17 s', 'allowed: remaining 9, resets in 3 s\n'],
    ['text', 'a\n…\nc', 'a\nb\nb\nc\n'],
    ['text', '…\nc', 'c\n'],
    ['text', 'uws …, weir 0.1.0 (node v22.22.2)', 'uws 20 x, weir 0.2.0 (node v20.20.2)'],
    ['text', 'export WEIR_KEY=abcdefghijklmnopqrstuv', 'export WEIR_KEY=0123456789_-0123456789'],
    ['http', RESPONSE, 'HTTP/1.1 200 OK\r\nX: 1\r\nratelimit: "a";r=9;t=59\r\n\r\nok'],
    ['http', 'HTTP/1.1 429 No\n\n{"a": 1}', 'HTTP/1.1 429 No\r\nA: b\r\n\r\n{"a":1}'],
  ] as const)('may vary in times, ids, keys and versions: %s, %s', (language, shown, printed) => {
    expect(differs(language, shown, printed)).toBe(false);
  });

  test.each([
    ['text', '10', '10\n11\n'],
    ['text', '10\n11', '10\n'],
    ['json', '{"success":true}', '{"success":false}'],
    ['json', '{"remaining":9}', '{"remaining":8}'],
    ['json', '{"remaining":9}', '{"remaining":"9"}'],
    ['json', '{"a":1}', '{"a":1,"b":2}'],
    ['json', '{"a":[1]}', '{"a":{"0":1}}'],
    ['json', '{"a":null}', '{"a":{}}'],
    ['json', '{"a":1}', 'curl: (7) failed'],
    ['text', 'a\n…\nc', 'a\nb\n'],
    ['text', 'a…c', 'ab\nc'],
    ['text', 'a.c', 'abc'],
    ['text', 'remaining 9', 'remaining 8'],
    ['http', 'HTTP/1.1 200 OK', 'HTTP/1.1 429 Too Many Requests'],
    ['http', RESPONSE, 'HTTP/1.1 200 OK\r\nratelimit: "a";r=8;t=4\r\n'],
    ['http', 'HTTP/1.1 200 OK\n\nok', 'HTTP/1.1 200 OK\r\nX: 1\r\n\r\nno'],
  ] as const)('differs in anything else: %s, %s', (language, shown, printed) => {
    expect(differs(language, shown, printed)).toBe(true);
  });
});
