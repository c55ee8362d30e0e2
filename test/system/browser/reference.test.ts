/** The API reference and the error pages in Chromium, at widths from a phone to a desktop. */

import { execFileSync } from 'node:child_process';
import axe from 'axe-core';
import { type Browser, chromium } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ERRORS } from '../../../src/core/errors.ts';
import { isMissing } from '../../support/programs/program.ts';
import {
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../../support/server.ts';

const PATHS = ['/docs', ...Object.keys(ERRORS).map((code) => `/docs/errors/${code}`)];
const WIDTHS = [360, 768, 1_024, 1_440];

const OPEN_EXAMPLES = 'for (const one of document.querySelectorAll("details")) one.open = true';

type ColorScheme = 'light' | 'dark';
const AUDITS: [path: string, width: number, colorScheme: ColorScheme][] = [
  ['/docs', 360, 'light'],
  ['/docs', 1_440, 'dark'],
  ['/docs/errors/NOT_FOUND', 360, 'dark'],
  ['/docs/errors/NOT_FOUND', 1_440, 'light'],
];

describe.skipIf(isMissing('chromium', '--version'))('in Chromium', () => {
  const dataDir = temporaryDirectory();
  let server: ServerProcess;
  let browser: Browser;
  beforeAll(async () => {
    server = await startServer(dataDir, { args: ['--counters', '1024'] });
    const path = execFileSync('sh', ['-c', 'command -v chromium'], { encoding: 'utf8' }).trim();
    // Chromium does not start its sandbox for root.
    const args = process.getuid?.() === 0 ? ['--no-sandbox'] : [];
    browser = await chromium.launch({ executablePath: path, args });
  });
  afterAll(async () => {
    await browser?.close();
    await server?.stop();
    removeDirectory(dataDir);
  });

  /** Opens a page. @returns it, with all that it reports and requests, also later */
  async function open(path: string, width: number, colorScheme: ColorScheme) {
    const page = await browser.newPage({ viewport: { width, height: 800 }, colorScheme });
    const reports: string[] = [];
    const requests: string[] = [];
    page.on('console', (message) => reports.push(message.text()));
    page.on('pageerror', (error) => reports.push(error.message));
    page.on('requestfailed', (request) => reports.push(`failed: ${request.url()}`));
    page.on('request', (request) => requests.push(request.url()));
    await page.goto(server.url + path);
    return { page, reports, requests };
  }

  test.each(PATHS)(
    '%s reports nothing, requests only its style and icon, and does not scroll sideways',
    async (path) => {
      const { page, reports, requests } = await open(path, WIDTHS[0], 'light');
      // Wide lines are in examples that are closed at first.
      await page.evaluate(OPEN_EXAMPLES);
      for (const width of WIDTHS) {
        await page.setViewportSize({ width, height: 800 });
        expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(width);
      }
      const own = [path, '/docs/style.css', '/docs/icon.svg'].map((name) => server.url + name);
      expect([...new Set(requests)].toSorted()).toEqual(own.toSorted());
      expect(reports).toEqual([]);
      await page.close();
    },
  );

  test.each(AUDITS)('axe finds no accessibility fault: %s, %i px, %s', async (...audit) => {
    const { page } = await open(...audit);
    await page.evaluate(axe.source);
    const { violations } = await page.evaluate<axe.AxeResults>('axe.run()');
    expect(violations.map(({ id, nodes }) => `${id}: ${nodes[0].html}`)).toEqual([]);
    await page.close();
  });

  test('the first link skips to the content', async () => {
    const { page } = await open('/docs', 1_440, 'light');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    expect(await page.evaluate('document.activeElement.id')).toBe('content');
    await page.close();
  });
});
