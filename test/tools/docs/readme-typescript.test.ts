/** Runs the TypeScript of README.md with the module: while weir runs, and while it is down. */

import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { build } from 'rolldown';
import { expect, test } from 'vitest';
import type { Limiter } from '../../../src/middleware/fetch.ts';
import { blocksOf } from '../../support/markdown.ts';
import {
  ROOT_KEY,
  removeDirectory,
  startServer,
  temporaryDirectory,
} from '../../support/server.ts';

const ROOT = new URL('../../../', import.meta.url).pathname;
/** Within node_modules, so that the example is no part of the sources. */
const CACHE = join(ROOT, 'node_modules/.cache');

interface Example {
  allowed: boolean;
  limiter: Limiter;
}

/**
 * The example as printed, but for another address, the place of the module here, and a window that
 * does not end between two checks.
 */
function exampleCode(url: string): string {
  const page = readFileSync(join(ROOT, 'README.md'), 'utf8');
  const fence = blocksOf(page).find((block) => block.kind === 'fence' && block.language === 'ts');
  const replacements = {
    "'@weir-ratelimit/weir/fetch'": `'${ROOT}src/middleware/fetch.ts'`,
    'createLimiter({': `createLimiter({ url: '${url}',`,
    'duration: 60_000': 'duration: 2_592_000_000',
  };
  const code = Object.entries(replacements).reduce((text, [printed, here]) => {
    expect(text).toContain(printed);
    return text.replace(printed, here);
  }, fence?.text ?? '');
  return `${code}\nexport { allowed, limiter };\n`;
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
    await build({ input, output: { file }, platform: 'node', external: /^node:/ });
    const example = (await import(/* @vite-ignore */ file)) as Example;
    expect(example.allowed).toBe(true);
    // The example used 2 of 10 tokens.
    const { allowed, quota } = await example.limiter.check('user_1');
    expect([allowed, quota?.remaining]).toEqual([true, 7]);

    await server.stop();
    expect(await example.limiter.check('user_1')).toMatchObject({
      ...{ allowed: true, error: expect.any(Error) },
    });
  } finally {
    delete process.env.WEIR_KEY;
    await server.stop();
    removeDirectory(dataDir);
    removeDirectory(directory);
  }
});
