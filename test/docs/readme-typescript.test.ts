/** Runs the TypeScript of README.md with the official client: while weir runs, and while it is down. */

import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { build } from 'rolldown';
import { expect, test } from 'vitest';
import { blocksOf } from '../support/markdown.ts';
import { ROOT_KEY, removeDirectory, startServer, temporaryDirectory } from '../support/server.ts';

const ROOT = new URL('../../', import.meta.url).pathname;
/** Within node_modules, so that the client's package is found. */
const CACHE = join(ROOT, 'node_modules/.cache');

interface Example {
  success: boolean;
  limiter: { limit(identifier: string): Promise<{ success: boolean; remaining: number }> };
}

/**
 * The example as printed, but for another address, the name of the client's package here, a window
 * that does not end between two checks, and a timeout that is long enough for a busy machine.
 */
function exampleCode(url: string): string {
  const page = readFileSync(join(ROOT, 'README.md'), 'utf8');
  const fence = blocksOf(page).find((block) => block.kind === 'fence' && block.language === 'ts');
  const replacements = {
    "'http://127.0.0.1:7070'": `'${url}'`,
    "'@unkey/ratelimit'": "'unkey-ratelimit-v2'",
    "duration: '60s'": "duration: '30d'",
    'ms: 250,': 'ms: 5_000,',
  };
  const code = Object.entries(replacements).reduce((text, [printed, here]) => {
    expect(text).toContain(printed);
    return text.replace(printed, here);
  }, fence?.text ?? '');
  return `${code}\nexport { limiter, success };\n`;
}

test('the TypeScript of README.md is allowed while weir runs, and while it is down', async () => {
  mkdirSync(CACHE, { recursive: true });
  const directory = mkdtempSync(join(CACHE, 'readme-'));
  const dataDir = temporaryDirectory();
  const server = await startServer(dataDir);
  process.env.WEIR_KEY = ROOT_KEY;
  try {
    const [input, file] = [join(directory, 'example.ts'), join(directory, 'example.mjs')];
    writeFileSync(input, exampleCode(server.url));
    await build({ input, output: { file }, platform: 'node', external: /^[^./]/ });
    const example = (await import(/* @vite-ignore */ file)) as Example;
    expect(example.success).toBe(true);
    // The example used 2 of 10 tokens.
    expect(await example.limiter.limit('user_1')).toMatchObject({ success: true, remaining: 7 });

    await server.stop();
    expect(await example.limiter.limit('user_1')).toMatchObject({ success: true, remaining: 0 });
  } finally {
    delete process.env.WEIR_KEY;
    await server.stop();
    removeDirectory(dataDir);
    removeDirectory(directory);
  }
});
