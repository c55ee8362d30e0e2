/** The dashboard in Chromium: all views and actions, by mouse and keyboard, at widths and colors. */

import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, BrowserContext, Locator, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { ROLES } from '../../../src/auth/roles.ts';
import { LONGEST_WINDOW_MS, sendCheck } from '../../support/http.ts';
import { logRecords } from '../../support/log-records.ts';
import { callOperation, callOperationOk } from '../../support/operations.ts';
import {
  freePort,
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../../support/server.ts';
import { accessibilityFaultsOf, isChromiumMissing, launchChromium } from './chromium.ts';

/** An identifier that is HTML, and one that changes the direction of the text behind it. */
const HTML_IDENTIFIER = '<img src=x onerror=document.title="broken">';
const BIDI_IDENTIFIER = 'evil\u202egnp.exe';

const POLICIES = {
  login: {
    gateway: 'nginx',
    windows: [{ limit: 100, duration: 60_000 }],
    identify: ['header:x-user'],
    shadow: true,
  },
  paid: {
    gateway: 'nginx',
    windows: [{ limit: 100, duration: 60_000 }],
    identify: ['ip'],
    cost: 3,
  },
};

const WIDTHS = [360, 1_440, 1_920];

/** Whether the tables know if they scroll: an observer measures them after they are shown. */
const TABLES_ARE_MEASURED = `[...document.querySelectorAll('.table')].every((table) => {
  return table.scrollWidth > table.clientWidth === table.hasAttribute('tabindex');
})`;

/** The texts of the axis of time of each chart. */
const TICKS_OF_CHARTS = `[...document.querySelectorAll('.plot svg')].map((chart) => {
  return [...chart.querySelectorAll('text.tick')].map((tick) => tick.textContent);
})`;

/** Reports a table that is not measured when it is rendered. A dialog is opened after that. */
const REPORT_UNMEASURED = `new MutationObserver(() => {
  for (const table of document.querySelectorAll('.table:not(dialog .table)')) {
    const scrolls = table.scrollWidth > table.clientWidth;
    if (scrolls && !table.hasAttribute('tabindex')) console.log('unmeasured', location.hash);
  }
}).observe(document.body, { childList: true, subtree: true })`;

/** The content is in the view when all is loaded. */
const VIEWS: [hash: string, heading: string, content: string, dialogs: string[]][] = [
  ['#/overview', 'Overview', 'Shard workers', []],
  ['#/namespaces', 'Namespaces', 'login', []],
  ['#/namespaces/login', 'login', 'Search and change its overrides', ['Delete namespace']],
  ['#/policies', 'Policies', 'Identified by', []],
  [
    ...(['#/overrides', 'Overrides', 'vip_*'] as const),
    ['Add override', 'Import', 'Change vip_*', 'Delete vip_*'],
  ],
  [
    ...(['#/identifier?namespace=login&identifier=user_1', 'Identifier', 'Next check'] as const),
    ['Reset', 'Block'],
  ],
  ['#/blocks', 'Blocks', 'blocked_1', ['End the block of blocked_1']],
  ['#/decisions', 'Recent decisions', 'user_1', []],
  ['#/identifier', 'Identifier', 'Most spending identifiers', []],
  ['#/identifier?identifier=user_1', 'Identifier', 'The latest denial first', []],
  ['#/keys', 'Keys', 'for nobody', ['Create key', 'Revoke for nobody']],
  ['#/audit', 'Audit log', 'key.create', []],
  ['#/nothing', 'Not found', 'There is no such view.', []],
];

describe.skipIf(isChromiumMissing)('the dashboard in Chromium', () => {
  const dataDir = temporaryDirectory();
  const filesDir = temporaryDirectory();
  let server: ServerProcess;
  let browser: Browser;
  const contexts: BrowserContext[] = [];
  /** What the pages of a test have reported. It must be nothing at the end of the test. */
  const reports: string[] = [];
  const forgetFailedRequests = (expected = /^Failed to load|^failed: /) => {
    const others = reports.splice(0).filter((text) => !expected.test(text));
    expect(others).toEqual([]);
  };

  /** Requests that a reload interrupts are no failures. */
  async function reload(page: Page): Promise<void> {
    await page.reload();
    const others = reports.splice(0).filter((text) => !text.startsWith('failed: '));
    reports.push(...others);
  }

  beforeAll(async () => {
    const config = join(filesDir, 'weir.json');
    writeFileSync(config, JSON.stringify({ policies: POLICIES }));
    const args = ['--counters', '1024', '--acceptors', '2', '--config', config];
    server = await startServer(dataDir, { args });
    browser = await launchChromium();
    for (const identifier of ['vip_*', HTML_IDENTIFIER, BIDI_IDENTIFIER]) {
      const override = { namespaceName: 'login', identifier, limit: 9, duration: 60_000 };
      await callOperationOk(server.port, 'ratelimits.setOverride', override);
    }
    const blocked = { namespaceName: 'login', identifier: 'blocked_1', expires: 4_102_444_800_000 };
    await callOperationOk(server.port, 'ratelimits.setBlock', blocked);
    await createKey('for nobody', ['keys.read']);
    const check = { namespace: 'login', identifier: 'user_1', limit: 1 };
    for (let i = 0; i < 3; i++) {
      await sendCheck(server.port, { ...check, duration: LONGEST_WINDOW_MS });
    }
    await callOperationOk(server.port, 'ratelimits.acquire', { ...check, ttl: 3_600_000 });
  });
  afterEach(async () => {
    const found = reports.splice(0);
    for (const context of contexts.splice(0)) await context.close();
    // Requests that the end interrupts are no failures.
    reports.length = 0;
    expect(found).toEqual([]);
  });
  afterAll(async () => {
    await browser?.close();
    expect([await server?.stop(), server?.stderr()]).toEqual([
      { code: 0, signal: null },
      expect.not.stringContaining('"level":50'),
    ]);
    // The dashboard itself sends none.
    const unknown = logRecords(server, 'a request has an unknown field; ignored');
    expect(unknown.filter(({ field }) => field !== 'algoritm')).toEqual([]);
    removeDirectory(dataDir);
    removeDirectory(filesDir);
  });

  const createKey = async (name: string, permissions: string[]) => {
    const created = await callOperationOk(server.port, 'keys.create', { name, permissions });
    return created as { keyId: string; key: string };
  };

  /** Opens the dashboard. Until the end of the test, all that the page reports is recorded. */
  async function open({ adminUrl } = server, width = WIDTHS[1]) {
    const viewport = { width, height: 800 };
    const context = await browser.newContext({ viewport, acceptDownloads: true });
    contexts.push(context);
    const page = await context.newPage();
    page.on('console', (message) => reports.push(message.text()));
    page.on('pageerror', (error) => reports.push(error.message));
    page.on('requestfailed', (request) => {
      // The stream ends with the page, and with its session.
      if (!request.url().endsWith('/events')) reports.push(`failed: ${request.url()}`);
    });
    page.on('request', (request) => {
      const { protocol, origin } = new URL(request.url());
      if (protocol !== 'blob:' && origin !== adminUrl) reports.push(`asked ${request.url()}`);
    });
    await page.addInitScript(
      'addEventListener("securitypolicyviolation", (it) => console.log(it.violatedDirective))',
    );
    await page.goto(adminUrl);
    await page.getByRole('button', { name: 'Sign in' }).waitFor();
    return page;
  }

  async function openSignedIn(key = ROOT_KEY, at = server, width = WIDTHS[1]) {
    const page = await open(at, width);
    await signIn(page, key);
    return page;
  }

  async function signIn(page: Page, key = ROOT_KEY): Promise<void> {
    await page.getByLabel('API key').fill(key);
    await press(page, 'Sign in');
    await heading(page, 'Overview');
  }

  async function heading(page: Page, name: string): Promise<void> {
    await page.getByRole('heading', { level: 1, name, exact: true }).waitFor();
  }

  async function goTo(page: Page, hash: string, name: string): Promise<void> {
    await page.evaluate(`location.hash = ${JSON.stringify(hash)}`);
    await heading(page, name);
  }

  /** @returns the accessibility faults, and whether the page scrolls sideways */
  async function faultsOf(page: Page): Promise<string[]> {
    await expect.poll(() => page.evaluate(TABLES_ARE_MEASURED)).toBe(true);
    const faults = await accessibilityFaultsOf(page);
    const width = await page.evaluate<number>('document.documentElement.scrollWidth');
    const isWide = width > page.viewportSize()!.width;
    return isWide ? [...faults, `the page is ${width} px wide`] : faults;
  }

  const press = (page: Page, name: string) => {
    return page.getByRole('button', { name, exact: true }).first().click();
  };
  const submit = (page: Page, name: string) => {
    return page.getByRole('dialog').getByRole('button', { name, exact: true }).click();
  };
  const fill = async (page: Page | Locator, fields: Record<string, string>) => {
    for (const [label, value] of Object.entries(fields)) await page.getByLabel(label).fill(value);
  };
  const see = (page: Page, text: string | RegExp) => page.getByText(text).first().waitFor();
  const listedOverrides = async () => {
    const query = { namespaceName: 'login' };
    const { overrides } = await callOperationOk(server.port, 'ratelimits.listOverrides', query);
    return overrides as { identifier: string; limit: number; duration: number }[];
  };

  test.each(WIDTHS)(
    'every view and dialog at %i px: axe finds nothing, nothing is reported, none is too wide',
    { timeout: 240_000 },
    async (width) => {
      const page = await open(server, width);
      await page.evaluate(REPORT_UNMEASURED);
      await page.getByText('Where do I get a key?').click();
      await see(page, 'weir keys create --name me --role viewer');
      const link = page.getByRole('link', { name: 'Keys and permissions' });
      expect(await link.getAttribute('href')).toBe(`${server.url}/docs#keys-and-permissions`);
      expect(['sign-in', await faultsOf(page)]).toEqual(['sign-in', []]);
      await page.getByLabel('API key').fill(ROOT_KEY);
      await press(page, 'Sign in');
      await see(page, 'By namespace, last 10 s');
      for (const [hash, name, content, dialogs] of VIEWS) {
        await goTo(page, hash, name);
        await page.getByRole('main').getByText(content).first().waitFor();
        expect([hash, await faultsOf(page)]).toEqual([hash, []]);
        for (const dialog of dialogs) {
          await press(page, dialog);
          await page.getByRole('dialog').waitFor();
          expect([dialog, await faultsOf(page)]).toEqual([dialog, []]);
          await page.keyboard.press('Escape');
          await page.getByRole('dialog').waitFor({ state: 'detached' });
        }
      }
    },
  );

  test('the overview follows the checks', async () => {
    const page = await openSignedIn();
    const row = page.getByRole('row', { name: /^live / });
    for (let i = 0; i < 3; i++) {
      await sendCheck(server.port, {
        namespace: 'live',
        identifier: 'a',
        limit: 2,
        duration: 60_000,
      });
    }
    await row.waitFor();
    await expect.poll(() => row.getByRole('cell').last().textContent()).toBe('3');
    const chart = page.getByRole('img', { name: /^Checks per second, all namespaces: Allowed / });
    await chart.locator('path').first().waitFor();
    await page.getByText('Figures as a table').first().click();
    await page.getByRole('table', { name: 'Checks per second, all namespaces' }).waitFor();
    await page.getByLabel('Namespace', { exact: true }).selectOption('live');
    await page.getByRole('img', { name: /^Checks per second, live: / }).waitFor();
    const unknownFields = page.locator('.figure').filter({ hasText: 'Unknown fields' });
    await expect.poll(() => unknownFields.locator('strong').textContent()).toBe('0');
    const misspelt = { namespace: 'live', identifier: 'a', algoritm: 'gcra' };
    await sendCheck(server.port, { ...misspelt, limit: 2, duration: 60_000 });
    await expect.poll(() => unknownFields.locator('strong').textContent()).toBe('1');
    await row.getByRole('link').click();
    await heading(page, 'live');
  });

  test('the overview begins with the last hour, after a reload too, and says what is covered', async () => {
    const page = await openSignedIn();
    for (let i = 0; i < 5; i++) {
      const check = { namespace: 'past', identifier: 'a', limit: 2, duration: 60_000 };
      await sendCheck(server.port, check);
    }
    await page.getByRole('row', { name: /^past / }).waitFor();
    await page.evaluate(`location.hash = '#/overview?namespace=past'`);
    await reload(page);
    const ofPast = page.getByRole('img', { name: /^Checks per second, past: / });
    const chart = page.getByRole('figure').filter({ has: ofPast });
    await chart.getByText(/^by (minute|second)/).waitFor();
    await chart.getByText('Figures as a table').click();
    // No check was sent since the reload, so a rate above 0 is that of a minute.
    const rates = chart.getByRole('row');
    await expect
      .poll(async () => {
        const texts = await rates.getByRole('cell').allTextContents();
        return texts.some((text) => /^[\d.]+\/s$/.test(text) && Number.parseFloat(text) > 0);
      })
      .toBe(true);
    const latency = page.getByRole('table', { name: 'Latency percentiles' });
    const names = ['last 10 s', 'last 1 min', 'last 5 min', 'last 1 h'];
    for (const name of names) {
      await latency.getByRole('rowheader', { name: new RegExp(`^${name}`) }).waitFor();
    }
    await latency
      .getByRole('rowheader', { name: /^last 1 h started (\d+ min )?(\d+ s )?ago$/ })
      .waitFor();
  });

  test('a drag over a chart chooses a time for all of the page, and the address keeps it', async () => {
    await sendCheck(server.port, {
      ...{ namespace: 'zoom', identifier: 'a', limit: 1, duration: 60_000 },
    });
    const page = await openSignedIn();
    // So long a time that the selection does not end now.
    await page.evaluate(`location.hash = '#/overview?from=${Date.now() - 600_000}'`);
    await page.getByRole('row', { name: /^zoom / }).waitFor();
    const cursor = page.getByRole('slider', { name: /^Latency of check requests: / });
    const drag = async () => {
      const { x, y, width } = (await cursor.boundingBox())!;
      await page.mouse.move(x + width * 0.1, y + 80);
      await page.mouse.down();
      await page.mouse.move(x + width * 0.4, y + 90, { steps: 3 });
      await page.locator('.selected').waitFor();
    };
    const before = page.url();
    await drag();
    await page.keyboard.press('Escape');
    await page.mouse.up();
    expect(page.url()).toBe(before);

    await drag();
    await page.mouse.up();
    await page.waitForURL(/#\/overview\?from=\d+&to=\d+$/);
    const reset = page.getByRole('button', { name: 'Reset zoom' });
    const zoomed = page.url();
    const seeTime = async () => {
      const time = (await page.getByRole('status').filter({ hasText: '–' }).textContent())!;
      await page.getByRole('table', { name: `By namespace, ${time}` }).waitFor();
      await page.getByRole('rowheader', { name: time }).waitFor();
      const [first, second] = await page.evaluate<string[][]>(TICKS_OF_CHARTS);
      expect(first.length).toBeGreaterThan(0);
      expect(second).toEqual(first);
      return time;
    };
    const shown = await seeTime();
    await reload(page);
    await reset.waitFor();
    await page.getByRole('row', { name: /^zoom / }).waitFor();
    expect(await seeTime()).toBe(shown);
    await page
      .getByRole('row', { name: /^zoom / })
      .getByRole('link')
      .click();
    await heading(page, 'zoom');
    expect(page.url().split('?')[1]).toBe(zoomed.split('?')[1]);
    await reset.click();
    await reset.waitFor({ state: 'detached' });
    expect(page.url()).toMatch(/#\/namespaces\/zoom$/);

    // The same by the keyboard. A time that ends now follows the live figures.
    await page.getByRole('slider', { name: /^Checks per second: / }).focus();
    for (const key of ['End', 'Shift+ArrowLeft', 'Shift+ArrowLeft']) await page.keyboard.press(key);
    await page.keyboard.press('Enter');
    await see(page, /– now$/);
    expect(page.url()).toMatch(/\?from=\d+$/);
    expect(await page.evaluate('document.activeElement.role')).toBe('slider');
  });

  test('the overview says why a server is degraded, and was, also on a narrow screen', async () => {
    const directory = temporaryDirectory();
    const degraded = await startServer(directory, { args: ['--counters', '1024'] });
    try {
      // A file that may not grow is a full disk.
      const limitFiles = (bytes: string) => {
        execFileSync('prlimit', ['--pid', String(degraded.child.pid), `--fsize=${bytes}`]);
      };
      limitFiles('1:');
      await sendCheck(degraded.port, { identifier: 'a', limit: 1, duration: LONGEST_WINDOW_MS });
      // Tables are measured a frame after a change of the width, which axe may come before.
      const page = await openSignedIn(ROOT_KEY, degraded, WIDTHS[0]);
      const reasons = page.getByRole('region', { name: 'Why weir is degraded' });
      await reasons
        .getByText(/^Disk: .* It began [1-9]\d* s ago\. Checks continue\. /)
        .first()
        .waitFor();
      const status = page.locator('.figure').filter({ hasText: 'Status' });
      expect(await status.locator('strong').textContent()).toBe('degraded');
      await page.getByRole('banner').getByRole('link', { name: 'Degraded' }).waitFor();
      expect(await faultsOf(page)).toEqual([]);

      // Later, the page still says when it was degraded.
      limitFiles('unlimited:');
      await page.getByRole('banner').getByRole('link', { name: 'Healthy' }).waitFor();
      await status.getByText(/^last fault /).waitFor();
      const past = page.getByRole('table', { name: 'Faults that have ended' });
      await past
        .getByRole('rowheader', { name: /^\w+ cannot be written$/ })
        .first()
        .waitFor();
      expect(await faultsOf(page)).toEqual([]);
      // This ends the stream of the page, which would report the end of the server.
      await page.goto('about:blank');
    } finally {
      degraded.child.kill('SIGKILL');
      await degraded.exited;
      removeDirectory(directory);
    }
  });

  test('overrides are searched, added, changed, deleted, imported and exported', async () => {
    const page = await openSignedIn();
    await page.getByRole('link', { name: 'Overrides' }).click();
    await heading(page, 'Overrides');
    await press(page, 'Add override');
    const dialog = page.getByRole('dialog');
    const fields = { Namespace: 'login', Identifier: 'user_9', Limit: '50', Window: '5m' };
    await fill(dialog, fields);
    await submit(page, 'Save');
    await see(page, 'The override of user_9 in login was added.');
    const added = () =>
      listedOverrides().then((all) => all.find((it) => it.identifier === 'user_9'));
    expect(await added()).toMatchObject({ limit: 50, duration: 300_000 });

    await page.getByLabel('Search').fill('USER_9');
    await expect.poll(() => page.getByRole('row').count()).toBe(2);
    const row = page.getByRole('row', { name: /^user_9 / });
    const lastCells = async () => (await row.getByRole('cell').allTextContents()).slice(-3, -1);
    expect(await lastCells()).toEqual(['never', '0']);
    const used = { namespace: 'login', identifier: 'user_9', limit: 9, duration: 60_000 };
    for (let i = 0; i < 2; i++) await sendCheck(server.port, used);
    await press(page, 'Change user_9');
    await dialog.getByLabel('Limit').fill('60');
    await submit(page, 'Save');
    await see(page, 'The override of user_9 in login was changed.');
    expect(await added()).toMatchObject({ limit: 60, duration: 300_000 });
    // The list is loaded again after the change.
    await expect.poll(lastCells).toEqual([expect.stringMatching(/^[A-Z].* 20\d\d, .*:/), '2']);
    await press(page, 'Delete user_9');
    await submit(page, 'Delete override');
    await see(page, 'The override of user_9 in login was deleted.');
    expect(await added()).toBeUndefined();

    await page.getByLabel('Search').fill('');
    await press(page, 'Add override');
    await fill(dialog, { ...fields, Namespace: 'addresses', Identifier: '10.0.0.0/8' });
    await dialog.getByLabel('CIDR block').check();
    await submit(page, 'Save');
    await page.getByRole('row', { name: /^10\.0\.0\.0\/8 CIDR block addresses 50 / }).waitFor();
    await press(page, 'Change 10.0.0.0/8');
    await dialog.getByLabel('Limit').fill('60');
    await submit(page, 'Save');
    await page.getByRole('row', { name: /^10\.0\.0\.0\/8 CIDR block addresses 60 / }).waitFor();
    await press(page, 'Delete 10.0.0.0/8');
    await submit(page, 'Delete override');
    await see(page, 'The override of 10.0.0.0/8 in addresses was deleted.');
    // The policy of this namespace identifies clients by a header.
    await press(page, 'Add override');
    await fill(dialog, { ...fields, Identifier: '10.0.0.0/8' });
    await dialog.getByLabel('CIDR block').check();
    await submit(page, 'Save');
    await see(page, /^no request has an identifier inside of the CIDR block "10\.0\.0\.0\/8": /);
    forgetFailedRequests();
    await press(page, 'Cancel');

    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'Export' }).click(),
    ]);
    const exported = join(filesDir, 'overrides.json');
    await download.saveAs(exported);
    await press(page, 'Delete vip_*');
    await submit(page, 'Delete override');
    await see(page, 'The override of vip_* in login was deleted.');
    await press(page, 'Import');
    await dialog.getByLabel('File of an export').setInputFiles(exported);
    await submit(page, 'Validate only');
    await see(page, 'The import is valid: 1 new, 0 changed, 2 the same.');
    expect((await listedOverrides()).map((it) => it.identifier)).not.toContain('vip_*');
    await submit(page, 'Import');
    await see(page, 'The overrides were imported: 1 new');
    expect((await listedOverrides()).map((it) => it.identifier)).toContain('vip_*');
  });

  test('an override gets an end, keeps it when other values change, and loses it', async () => {
    const page = await openSignedIn();
    await goTo(page, '#/overrides', 'Overrides');
    const dialog = page.getByRole('dialog');
    const ending = async () => {
      return (await listedOverrides()).find(({ identifier }) => identifier === 'ending_9');
    };
    await press(page, 'Add override');
    const fields = { Namespace: 'login', Identifier: 'ending_9', Limit: '50', Window: '5m' };
    await fill(dialog, { ...fields, Expires: '2020-01-31T12:00' });
    await submit(page, 'Save');
    await see(page, /^"expires" must be a Unix time in ms, in the future; got /);
    forgetFailedRequests();
    await fill(dialog, { Expires: '2099-01-31T12:00' });
    await submit(page, 'Save');
    const row = page.getByRole('row', { name: /^ending_9 / });
    await row.waitFor();
    const expires = await page.evaluate(() => new Date('2099-01-31T12:00').getTime());
    expect(await ending()).toMatchObject({ limit: 50, expires });
    expect(await row.textContent()).toContain('2099');
    // An end that the input does not show exactly stays the same too.
    const exact = { namespaceName: 'login', identifier: 'ending_9', limit: 50, duration: 300_000 };
    for (const end of [expires + 12_345, Number.MAX_SAFE_INTEGER]) {
      await callOperationOk(server.port, 'ratelimits.setOverride', { ...exact, expires: end });
      await reload(page);
      await press(page, 'Change ending_9');
      await dialog.getByLabel('Limit').fill('60');
      await submit(page, 'Save');
      await see(page, 'The override of ending_9 in login was changed.');
      expect(await ending()).toMatchObject({ limit: 60, expires: end });
    }
    await callOperationOk(server.port, 'ratelimits.setOverride', { ...exact, expires });
    await goTo(page, '#/identifier?namespace=login&identifier=ending_9', 'Identifier');
    await page
      .getByRole('row', { name: /^login ending_9 identifier 50 5 min .*2099.* applies$/ })
      .waitFor();
    await goTo(page, '#/namespaces/login', 'login');
    await page.getByRole('row', { name: /^ending_9 identifier 50 5 min .*2099/ }).waitFor();
    await goTo(page, '#/overrides?namespace=login', 'Overrides');
    await press(page, 'Change ending_9');
    await dialog.getByLabel('Expires').fill('');
    await submit(page, 'Save');
    await expect.poll(ending).not.toHaveProperty('expires');
    await page.getByRole('row', { name: /^ending_9 .* never never / }).waitFor();
    await press(page, 'Delete ending_9');
    await submit(page, 'Delete override');
    await see(page, 'The override of ending_9 in login was deleted.');
  });

  test('an override gets a concurrency, keeps it when other values change, and loses it', async () => {
    const page = await openSignedIn();
    await goTo(page, '#/overrides?namespace=login', 'Overrides');
    const dialog = page.getByRole('dialog');
    const leased = async () => {
      return (await listedOverrides()).find(({ identifier }) => identifier === 'leased_9');
    };
    await press(page, 'Add override');
    const fields = { Namespace: 'login', Identifier: 'leased_9', Limit: '50', Window: '5m' };
    await fill(dialog, { ...fields, Concurrency: '0' });
    await submit(page, 'Save');
    await page
      .getByRole('row', { name: /^leased_9 identifier login 50 per 5 min, 0 leases never / })
      .waitFor();
    expect(await leased()).toMatchObject({ limit: 50, concurrency: 0 });
    await press(page, 'Change leased_9');
    await dialog.getByLabel('Limit').fill('60');
    await submit(page, 'Save');
    await see(page, 'The override of leased_9 in login was changed.');
    expect(await leased()).toMatchObject({ limit: 60, concurrency: 0 });
    await goTo(page, '#/identifier?namespace=login&identifier=leased_9', 'Identifier');
    const explained = /^login leased_9 identifier 60 5 min 0 never applies$/;
    await page.getByRole('row', { name: explained }).waitFor();
    await goTo(page, '#/namespaces/login', 'login');
    await page.getByRole('row', { name: /^leased_9 identifier 60 5 min 0 never/ }).waitFor();
    await goTo(page, '#/overrides?namespace=login', 'Overrides');
    await press(page, 'Change leased_9');
    await dialog.getByLabel('Concurrency').fill('');
    await submit(page, 'Save');
    await expect.poll(leased).not.toHaveProperty('concurrency');
    await press(page, 'Delete leased_9');
    await submit(page, 'Delete override');
    await see(page, 'The override of leased_9 in login was deleted.');
  });

  test('errors of an action are shown in its form, with the message of the API', async () => {
    const page = await openSignedIn();
    await goTo(page, '#/overrides', 'Overrides');
    await press(page, 'Import');
    await page.getByLabel('JSON').fill('{');
    await submit(page, 'Import');
    await page.getByRole('alert').getByText('The text is not JSON').waitFor();
    await page.getByLabel('JSON').fill('[{"identifier":"abc","limit":-1,"duration":1000}]');
    await submit(page, 'Import');
    const message = /^overrides\[0\]: "limit" must be .*; got -1$/;
    await page.getByRole('alert').getByText(message).waitFor();
    forgetFailedRequests();
  });

  test('a namespace shows who is denied, and the identifier why', async () => {
    const override = { identifier: 'busy_*', limit: 2, duration: LONGEST_WINDOW_MS };
    await callOperationOk(server.port, 'ratelimits.setOverride', {
      ...override,
      namespaceName: 'login',
    });
    await callOperationOk(server.port, 'ratelimits.setOverride', {
      ...override,
      namespaceName: 'log*',
    });
    const check = { namespace: 'login', identifier: 'busy_1', limit: 9, duration: 60_000 };
    for (let i = 0; i < 7; i++) await sendCheck(server.port, check);
    const page = await openSignedIn();
    await goTo(page, '#/namespaces/login', 'login');
    const denied = page.getByRole('table', { name: 'Most denied identifiers' });
    await denied.getByRole('row', { name: 'busy_1 5' }).waitFor();
    const spending = page.getByRole('table', { name: 'Most spending identifiers' });
    await spending.getByRole('row', { name: 'busy_1 2' }).waitFor();
    await sendCheck(server.port, check);
    // It is read again by itself.
    await denied.getByRole('row', { name: 'busy_1 6' }).waitFor();
    await denied.getByRole('link', { name: 'busy_1' }).click();
    await see(page, /^The check is denied: /);
    const overrides = page.getByRole('table', { name: 'Overrides that match' });
    await overrides.getByRole('row', { name: /^login busy_\* pattern 2 .* applies$/ }).waitFor();
    await overrides
      .getByRole('row', { name: /^log\* busy_\* pattern 2 .* does not apply: / })
      .waitFor();
  });

  test('an abusive client is found without its namespace', async () => {
    const check = { identifier: 'abuser', limit: 2, duration: LONGEST_WINDOW_MS };
    for (const namespace of ['shop_1', 'shop_2']) {
      await callOperationOk(server.port, 'ratelimits.setOverride', {
        ...{ namespaceName: namespace, identifier: 'unused', limit: 1, duration: 60_000 },
      });
      for (let i = 0; i < 30; i++) await sendCheck(server.port, { ...check, namespace });
    }
    const page = await openSignedIn();
    await goTo(page, '#/identifier', 'Identifier');
    const denied = page.getByRole('table', { name: 'Most denied identifiers' });
    await denied.getByRole('row', { name: 'abuser shop_1 28' }).waitFor();
    await see(page, /^Identifiers are counted by hour: .*:00 – .*:00\./);
    await denied.getByRole('row', { name: 'abuser shop_2 28' }).getByRole('link').click();
    await see(page, /^The check is denied: /);
    await goTo(page, '#/identifier', 'Identifier');
    await fill(page, { Identifier: 'abuser' });
    await press(page, 'Show');
    const places = page.getByRole('table', { name: /^The latest denial first/ });
    await places.getByRole('row', { name: /^shop_1 .* 2 of 2 used per 36,525 d/ }).waitFor();
    await places.getByRole('link', { name: 'shop_2' }).click();
    await see(page, /^The check is denied: /);
    await goTo(page, '#/identifier?identifier=abu', 'Identifier');
    const beginning = page.getByRole('table', { name: 'The most denied first' });
    await beginning.getByRole('row', { name: /^abuser shop_1 28 2 .* analytics, decis/ }).waitFor();
    await see(page, 'Others may exist, because counters do not have the texts of identifiers.');
    await goTo(page, '#/identifier?identifier=nowhere', 'Identifier');
    await see(
      page,
      'nowhere has no counter, no hold, no block, no override of its own and no recent decision.',
    );
  });

  test('recent decisions are listed and filtered, and lead to the identifier', async () => {
    const check = { namespace: 'recent', limit: 1, duration: LONGEST_WINDOW_MS, cost: 2 };
    const send = (identifier: string) => sendCheck(server.port, { ...check, identifier });
    for (const identifier of ['a', 'b']) await send(identifier);
    const page = await openSignedIn();
    await goTo(page, '#/decisions?namespace=recent', 'Recent decisions');
    const table = page.getByRole('table', { name: 'The newest first' });
    await table.getByRole('row', { name: / denied 1 recent a 1 per / }).waitFor();
    await send('c');
    // It is read again by itself.
    await table.getByRole('row', { name: / denied 1 recent c 1 per / }).waitFor();
    await fill(page, { Identifier: 'b' });
    await press(page, 'Show');
    await table.getByRole('row', { name: / recent c / }).waitFor({ state: 'detached' });
    await page.getByLabel('Limit set by').selectOption('override');
    await see(page, /^There is no such decision since /);
    await page.getByLabel('Limit set by').selectOption('');
    await table.getByRole('link', { name: 'b', exact: true }).click();
    await see(page, /^The check is denied: the cost 2 is above the limit 1 /);
  });

  test('an identifier is inspected, checked with a cost, and reset', async () => {
    const page = await openSignedIn();
    await goTo(page, '#/identifier?namespace=login&identifier=user_7', 'Identifier');
    await page.getByText('A hypothetical check').click();
    await fill(page, { Limit: '10', Window: '365d', Cost: '4' });
    await press(page, 'Check');
    await see(page, 'The check is allowed. 6 of 10 tokens remain.');
    await page.getByRole('row', { name: /^365 d fixed 10 4 6 / }).waitFor();
    await page.getByLabel('Cost').fill('7');
    await press(page, 'Check');
    await see(page, 'The check is denied. 0 of 10 tokens remain.');
    await press(page, 'Reset');
    await submit(page, 'Reset counters');
    await see(page, 'Counters that were reset: 1.');
    await see(page, 'user_7 has no counters in login.');
  });

  test('a live hold of an identifier is released, once confirmed', async () => {
    const hold = { namespace: 'login', identifier: 'user_8' };
    const lease = { ...hold, limit: 5, cost: 3, ttl: 3_600_000 };
    await callOperationOk(server.port, 'ratelimits.acquire', lease);
    const page = await openSignedIn();
    await goTo(page, '#/identifier?namespace=login&identifier=user_8', 'Identifier');
    const row = page.getByRole('row', { name: / lease 3 5 .* Release \w+-\w+$/ });
    await row.waitFor();
    await row.getByRole('button').click();
    await submit(page, 'Cancel');
    await row.getByRole('button').click();
    await submit(page, 'Release lease');
    await see(page, /^The lease \w+-\w+ has ended\. Released tokens: 3\.$/);
    await row.waitFor({ state: 'detached' });
    expect(await callOperationOk(server.port, 'ratelimits.inspect', hold)).toMatchObject({
      holds: { live: 0 },
    });
    const { key } = await createKey('reader', ['ratelimit.*.read_namespace']);
    await callOperationOk(server.port, 'ratelimits.acquire', lease);
    const reader = await openSignedIn(key);
    await goTo(reader, '#/identifier?namespace=login&identifier=user_8', 'Identifier');
    await reader.getByRole('row', { name: / lease 3 5 / }).waitFor();
    expect(await reader.getByRole('button', { name: /^Release/ }).count()).toBe(0);
  });

  describe('shows the answer to its address, and no other:', () => {
    const count = async (identifier: string, cost: number) => {
      const terms = { limit: 30, duration: LONGEST_WINDOW_MS, cost };
      await sendCheck(server.port, { namespace: 'in_code', identifier, ...terms });
    };
    const addressOf = (identifier: string) => {
      return `#/identifier?namespace=in_code&identifier=${identifier}`;
    };
    const answerOf = (page: Page, identifier: string) => {
      return page.getByText(`The answer for ${identifier} in the namespace in_code:`);
    };
    /** Holds the responses to the explanations of an identifier until `release`. */
    const holdAnswers = async (page: Page, identifier: string) => {
      let release = () => {};
      const released = new Promise<void>((resolve) => {
        release = resolve;
      });
      await page.route('**/dashboard/api/ratelimits.explain', async (route) => {
        if (route.request().postDataJSON().identifier !== identifier) return route.continue();
        const response = await route.fetch();
        await released;
        await route.fulfill({ response });
      });
      return release;
    };

    test('where the limit is in code, that of the last check, which is labelled', async () => {
      await count('full', 30);
      await count('full', 1);
      const page = await openSignedIn();
      await goTo(page, addressOf('full'), 'Identifier');
      await see(
        page,
        /^The check is denied: .* 0 of 30 tokens left, .* The last check had this limit: 30 per/,
      );
      const windows = page.getByRole('table', { name: 'The windows that decide' });
      await windows
        .getByRole('row', { name: /^36,525 d fixed \(the last check\) 30 .* 0 denied/ })
        .waitFor();
      // Without the algorithm that no check uses.
      await page.getByRole('row', { name: /^36,525 d fixed 30 30 0/ }).waitFor();
      expect(await page.getByRole('row', { name: /^36,525 d sliding/ }).count()).toBe(0);
      await page.getByText('Last denied', { exact: true }).waitFor();
      // Not the 30 allowed ones.
      const recent = page.getByRole('table', { name: 'The newest denials' });
      await recent
        .getByRole('row', { name: / denied 1 30 per 36,525 d, fixed 0 request/ })
        .waitFor();
      const all = page.getByRole('link', { name: 'All recent decisions' });
      expect(await all.getAttribute('href')).toBe(
        '#/decisions?namespace=in_code&identifier=full&decision=',
      );
      await page.getByText('A hypothetical check').click();
      await page.getByLabel('Algorithm').selectOption('sliding');
      await press(page, 'Explain');
      await windows.getByRole('row', { name: /^36,525 d sliding/ }).waitFor();
    });

    test('with the cost of the policy, unless the form has one', async () => {
      const page = await openSignedIn();
      await goTo(page, '#/identifier?namespace=paid&identifier=203.0.113.1', 'Identifier');
      await see(page, /^The check is allowed: .* and the cost is 3\./);
      await page.getByText('A hypothetical check').click();
      await fill(page, { Cost: '2' });
      await press(page, 'Explain');
      await see(page, /^The check is allowed: .* and the cost is 2\./);
    });

    test('when the address changes before the page is painted', async () => {
      await count('early', 1);
      const page = await openSignedIn();
      await page.addInitScript(
        `new MutationObserver((_, observer) => {
          if (document.querySelector('h1') === null) return;
          observer.disconnect();
          location.hash = ${JSON.stringify(addressOf('early'))};
        }).observe(document, { childList: true, subtree: true });`,
      );
      await reload(page);
      await answerOf(page, 'early').waitFor();
    });

    test('when the address of an open tab changes, and back', async () => {
      await count('first', 30);
      await count('second', 1);
      const page = await openSignedIn();
      await goTo(page, addressOf('first'), 'Identifier');
      await answerOf(page, 'first').waitFor();
      await see(page, /^The check is denied: /);
      await goTo(page, addressOf('second'), 'Identifier');
      await answerOf(page, 'second').waitFor();
      await see(page, /^The check is allowed: .* 29 of 30 tokens left/);
      expect(await page.getByLabel('Identifier', { exact: true }).inputValue()).toBe('second');
      expect(await page.getByText(/^The check is denied: /).count()).toBe(0);
      await page.goBack();
      await see(page, /^The check is denied: /);
      expect(await answerOf(page, 'first').count()).toBe(1);
      // A button goes to the address of what is in the form.
      await page.getByText('A hypothetical check').click();
      await fill(page, { Identifier: 'second', Cost: '2' });
      await press(page, 'Show');
      await see(page, /^The check is allowed: .* and the cost is 2/);
      const asked = `${addressOf('second')}&cost=2`;
      expect(await page.evaluate('location.hash')).toBe(asked);
      await reload(page);
      await see(page, /^The check is allowed: .* and the cost is 2/);
    });

    test('while an answer is under way, and when an older answer comes later', async () => {
      await count('slow', 30);
      await count('quick', 1);
      const page = await openSignedIn();
      await goTo(page, addressOf('quick'), 'Identifier');
      await answerOf(page, 'quick').waitFor();
      const release = await holdAnswers(page, 'slow');
      await goTo(page, addressOf('slow'), 'Identifier');
      await page.getByLabel('Identifier', { exact: true }).waitFor();
      await expect.poll(() => page.getByText(/^The check is/).count()).toBe(0);
      await goTo(page, addressOf('quick'), 'Identifier');
      await see(page, /^The check is allowed: /);
      const late = page.waitForResponse((response) => {
        return response.request().postData()?.includes('"slow"') === true;
      });
      release();
      await (await late).finished();
      await goTo(page, `${addressOf('quick')}&cost=2`, 'Identifier');
      await see(page, /^The check is allowed: .* and the cost is 2/);
      expect(await answerOf(page, 'quick').count()).toBe(1);
      expect(await page.getByText(/^The check is denied: /).count()).toBe(0);
    });

    test('after an error of another address, and with a decision on another identifier', async () => {
      await count('good', 1);
      const page = await openSignedIn();
      await goTo(page, '#/identifier?namespace=nowhere&identifier=good', 'Identifier');
      await page.getByRole('alert').getByText('there is no namespace "nowhere"').waitFor();
      await goTo(page, addressOf('good'), 'Identifier');
      await answerOf(page, 'good').waitFor();
      expect(await page.getByRole('alert').count()).toBe(0);
      await page.getByText('A hypothetical check').click();
      await fill(page, { Limit: '30', Window: '365d' });
      await press(page, 'Check');
      await see(page, 'The check is allowed. 29 of 30 tokens remain.');
      await goTo(page, addressOf('other'), 'Identifier');
      await answerOf(page, 'other').waitFor();
      expect(await page.getByText(/^The check is allowed\./).count()).toBe(0);
      forgetFailedRequests();
    });

    test('in the views of overrides and in the overview', async () => {
      const override = { identifier: 'for_all', limit: 9, duration: 60_000 };
      for (const namespaceName of ['area_1', 'area_2']) {
        const fields = { ...override, namespaceName };
        await callOperationOk(server.port, 'ratelimits.setOverride', fields);
      }
      const page = await openSignedIn();
      await goTo(page, '#/overrides?namespace=area_1', 'Overrides');
      await page.getByRole('row', { name: /^for_all identifier area_1 / }).waitFor();
      await goTo(page, '#/overrides?namespace=area_2', 'Overrides');
      await page.getByRole('row', { name: /^for_all identifier area_2 / }).waitFor();
      const namespace = page.getByLabel('Namespace', { exact: true });
      expect(await namespace.inputValue()).toBe('area_2');
      await namespace.fill('area_1');
      await namespace.press('Enter');
      await page.getByRole('row', { name: /^for_all identifier area_1 / }).waitFor();
      expect(await page.evaluate('location.hash')).toBe('#/overrides?namespace=area_1');
      await goTo(page, '#/overview?namespace=area_1', 'Overview');
      await page.getByRole('img', { name: /, area_1: / }).waitFor();
      await goTo(page, '#/overview?namespace=area_2', 'Overview');
      await page.getByRole('img', { name: /, area_2: / }).waitFor();
      expect(await namespace.inputValue()).toBe('area_2');
    });
  });

  test('a deletion names the namespace, and the limit that applies after it', async () => {
    const set = (namespaceName: string, identifier: string, limit: number) => {
      const fields = { namespaceName, identifier, limit, duration: 60_000 };
      return callOperationOk(server.port, 'ratelimits.setOverride', fields);
    };
    await set('shop', 'gold_1', 50);
    await set('shop', 'plain_1', 50);
    await set('shop', 'gold_*', 7);
    await set('login', 'plain_1', 50);
    const page = await openSignedIn();
    const dialog = page.getByRole('dialog');
    for (const [namespace, identifier, after] of [
      ['shop', 'gold_1', 'the override of gold_* in shop applies: limit 7, window 1 min.'],
      [
        'shop',
        'plain_1',
        'No other override matches. From the next check on, each check has the l',
      ],
      ['shop', 'gold_*', 'the next override that matches the identifier of a check applies to it.'],
      [
        'login',
        'plain_1',
        'requests through the gateway have the limit of its policy, and each ot',
      ],
    ]) {
      await goTo(page, `#/overrides?namespace=${namespace}`, 'Overrides');
      await press(page, `Delete ${identifier}`);
      await dialog.getByText(after).waitFor();
      expect(await faultsOf(page)).toEqual([]);
      const named = `This is the override of ${identifier} in the namespace ${namespace}.`;
      expect(await dialog.textContent()).toContain(named);
      await submit(page, 'Delete override');
      await see(page, `The override of ${identifier} in ${namespace} was deleted.`);
    }
  });

  test('a dialog says what an action would destroy, and begins on Cancel', async () => {
    const override = { identifier: 'c_*', limit: 5, duration: LONGEST_WINDOW_MS };
    for (const namespaceName of ['doomed', 'doom*']) {
      await callOperationOk(server.port, 'ratelimits.setOverride', { ...override, namespaceName });
    }
    const check = { namespace: 'doomed', identifier: 'c_1', limit: 9, duration: 60_000 };
    for (let i = 0; i < 3; i++) await sendCheck(server.port, check);
    const { keyId } = await createKey('of root', ['keys.read']);
    const page = await openSignedIn();
    const dialog = page.getByRole('dialog');
    const opens = async (hash: string, heading1: string, button: string) => {
      await goTo(page, hash, heading1);
      await press(page, button);
      const focused = () => page.evaluate<string>('document.activeElement.textContent');
      await expect.poll(focused).toBe('Cancel');
    };
    await opens('#/overrides?namespace=doom*', 'Overrides', 'Delete c_*');
    await dialog.getByText('Namespaces that match now: 1 (doomed).').waitFor();
    await dialog.getByText('It has never applied.').waitFor();
    await submit(page, 'Cancel');
    await opens('#/overrides?namespace=doomed', 'Overrides', 'Delete c_*');
    await dialog.getByText(/^It has applied 3 times, last at /).waitFor();
    await submit(page, 'Cancel');
    await opens('#/identifier?namespace=doomed&identifier=c_1', 'Identifier', 'Reset');
    await dialog.getByRole('row', { name: /^36,525 d fixed 3 of 5 / }).waitFor();
    await submit(page, 'Cancel');
    await opens('#/keys', 'Keys', 'Revoke of root');
    await dialog.getByText(keyId).waitFor();
    await dialog.getByText('configured root key').waitFor();
    await submit(page, 'Cancel');
    await opens('#/namespaces/doomed', 'doomed', 'Delete namespace');
    await dialog.getByText('Its overrides are deleted: 1.').waitFor();
    await submit(page, 'Cancel');
  });

  test('a list of identifiers offers their override and their reset, and stays', async () => {
    const check = { namespace: 'listed', identifier: 'one', limit: 1, duration: LONGEST_WINDOW_MS };
    for (let i = 0; i < 2; i++) await sendCheck(server.port, check);
    const page = await openSignedIn();
    await goTo(page, '#/decisions?namespace=listed', 'Recent decisions');
    const dialog = page.getByRole('dialog');
    await press(page, 'Actions for one');
    await press(page, 'Set override');
    await dialog.getByLabel('Limit').fill('7');
    await submit(page, 'Save');
    await see(page, 'The override of one in listed was added.');
    await press(page, 'Actions for one');
    await press(page, 'Set override');
    // It is known by now.
    expect(await dialog.getByLabel('Limit').inputValue()).toBe('7');
    await submit(page, 'Cancel');
    await press(page, 'Actions for one');
    await press(page, 'Reset counters');
    await submit(page, 'Reset counters');
    await see(page, /^Counters of one in listed that were reset: \d+\.$/);
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await press(page, 'Copy one');
    await page.getByRole('status').getByText('Copied', { exact: true }).waitFor();
    expect(await page.evaluate('navigator.clipboard.readText()')).toBe('one');
  });

  test('an identifier is blocked for a time, and its block is listed, explained and ended', async () => {
    const check = { namespace: 'blocks', identifier: 'bot', limit: 1, duration: LONGEST_WINDOW_MS };
    for (let i = 0; i < 2; i++) await sendCheck(server.port, check);
    const page = await open();
    // The clock of this browser is wrong. Times are those of the server.
    await page.clock.setFixedTime(Date.now() + 86_400_000);
    await signIn(page);
    await page.getByRole('link', { name: 'Healthy' }).waitFor();
    await goTo(page, '#/identifier?identifier=bot', 'Identifier');
    await press(page, 'Actions for bot');
    await press(page, 'Block');
    const dialog = page.getByRole('dialog');
    await dialog.getByText('After the block, each check has the limit that it sends.').waitFor();
    await dialog.getByLabel('For').selectOption('6 h');
    await dialog.getByLabel('Reason').fill('ticket 5512');
    await submit(page, 'Block identifier');
    await see(page, 'bot in blocks is blocked for 6 h.');
    const blocks = async () => {
      const { blocks: listed } = await callOperationOk(server.port, 'ratelimits.listBlocks');
      return listed as { identifier: string; expires: number }[];
    };
    const { expires } = (await blocks()).find(({ identifier }) => identifier === 'bot')!;
    expect(Math.abs(expires - Date.now() - 6 * 3_600_000)).toBeLessThan(60_000);
    await goTo(page, '#/identifier?namespace=blocks&identifier=bot', 'Identifier');
    await see(page, /^The check is denied: the identifier is blocked until .* Why: "ticket 5512"/);
    await goTo(page, '#/blocks', 'Blocks');
    const row = page.getByRole('row', { name: /^bot / });
    await row.getByText('ticket 5512').waitFor();
    await press(page, 'End the block of bot');
    await submit(page, 'End block');
    await see(page, 'bot in blocks is not blocked any more.');
    await row.waitFor({ state: 'detached' });
    expect(await blocks()).toMatchObject([{ identifier: 'blocked_1' }]);
  });

  test('the audit log is filtered, by its form and by its address', async () => {
    const set = (identifier: string, namespaceName: string, limit: number) => {
      const fields = { namespaceName, identifier, limit, duration: 60_000 };
      return callOperationOk(server.port, 'ratelimits.setOverride', fields);
    };
    await set('Audited_1', 'audit_1', 1);
    await set('Audited_1', 'audit_1', 2);
    await set('Audited_1', 'audit_2', 1);
    const page = await openSignedIn();
    await goTo(page, '#/audit', 'Audit log');
    await page.getByLabel('Target contains').fill('audited');
    await press(page, 'Show');
    await page.getByRole('table', { name: /^3 of \d+ changes$/ }).waitFor();
    await page.getByLabel('Namespace', { exact: true }).fill('audit_1');
    await page.getByLabel('Action').selectOption('override.update');
    const row = page.getByRole('row', { name: /override\.update configured root key .* 1 → 2/ });
    await row.waitFor();
    const hash = '#/audit?action=override.update&namespace=audit_1&target=audited';
    expect(await page.evaluate('location.hash')).toBe(hash);
    await reload(page);
    await row.waitFor();
    expect(await page.getByRole('row').count()).toBe(2);
    await page.getByLabel('By', { exact: true }).fill('expiry');
    await press(page, 'Show');
    await see(page, 'No entry matches.');
  });

  test('on a narrow screen a row is a card with all of its values', async () => {
    const page = await openSignedIn(ROOT_KEY, server, WIDTHS[0]);
    await goTo(page, '#/overrides?namespace=login', 'Overrides');
    const row = page.getByRole('row', { name: /^vip_\*/ });
    for (const text of ['pattern', '9 per 1 min', 'Change', 'Delete']) {
      const box = await row.getByText(text, { exact: true }).boundingBox();
      expect([text, box!.x >= 0 && box!.x + box!.width <= WIDTHS[0]]).toEqual([text, true]);
    }
    await page.getByLabel('Sort by').selectOption('Identifier');
    const first = page.getByRole('rowheader').first();
    await expect.poll(() => first.textContent()).toBe(HTML_IDENTIFIER);
  });

  test('a new key is shown once and works; a revoked one does not', async () => {
    const page = await openSignedIn();
    await goTo(page, '#/keys', 'Keys');
    await press(page, 'Create key');
    await page.getByLabel('Name', { exact: true }).fill('made here');
    await page.getByRole('checkbox', { name: /^list keys/ }).check();
    await submit(page, 'Create');
    const key = await page.getByLabel('API key').inputValue();
    expect((await callOperation(server.port, 'keys.list', {}, key)).status).toBe(200);
    await submit(page, 'Close');
    expect(await page.content()).not.toContain(key);
    await press(page, 'Revoke made here');
    await submit(page, 'Revoke key');
    await see(page, 'The key made here was revoked.');
    expect((await callOperation(server.port, 'keys.list', {}, key)).status).toBe(401);
    await goTo(page, '#/audit', 'Audit log');
    await page.getByRole('row', { name: /key\.revoke .*made here/ }).waitFor();
  });

  test('a key gets the permissions of the chosen role, of those that the own key covers', async () => {
    const createdAs = async (signedIn: string, role: string) => {
      const page = await openSignedIn(signedIn);
      await goTo(page, '#/keys', 'Keys');
      await press(page, 'Create key');
      await page.getByLabel('Name', { exact: true }).fill('of a role');
      const choice = page.getByLabel('Role', { exact: true });
      const offered = await choice.locator('option').evaluateAll((all) => {
        return all.map((option) => (option as unknown as { value: string }).value);
      });
      await choice.selectOption(role);
      expect(await page.getByRole('checkbox').count()).toBe(0);
      await submit(page, 'Create');
      return { offered, key: await page.getByLabel('API key').inputValue() };
    };
    const { viewer, operator } = ROLES;
    const admin = await createdAs(ROOT_KEY, 'admin');
    expect(admin.offered).toEqual(['', 'viewer', 'operator', 'admin']);
    const { key } = await createKey('operator', [...operator.permissions, 'keys.create']);
    const created = await createdAs(key, 'viewer');
    expect(created.offered).toEqual(['', 'viewer', 'operator']);
    const { keys } = await callOperationOk(server.port, 'keys.list', {}, admin.key);
    const permissions = (keys as { name: string; permissions: string[] }[])
      .filter(({ name }) => name === 'of a role')
      .map((listed) => listed.permissions);
    expect(permissions).toEqual([['*'], viewer.permissions]);
  });

  test('a namespace is deleted, and is then no longer listed', async () => {
    const override = { namespaceName: 'to delete', identifier: 'abc', limit: 1, duration: 60_000 };
    await callOperationOk(server.port, 'ratelimits.setOverride', override);
    const page = await openSignedIn();
    await goTo(page, '#/namespaces', 'Namespaces');
    await page.getByRole('link', { name: 'to delete' }).click();
    await press(page, 'Delete namespace');
    await submit(page, 'Delete namespace');
    await page.getByRole('heading', { name: 'Namespaces' }).waitFor();
    await see(page, 'login');
    expect(await page.getByRole('link', { name: 'to delete' }).count()).toBe(0);
    const { namespaces } = await callOperationOk(server.port, 'ratelimits.listNamespaces');
    expect(JSON.stringify(namespaces)).not.toContain('to delete');
    // The view that is left may have read its figures again just after the deletion.
    forgetFailedRequests(/status of 404/);
    await goTo(page, '#/audit', 'Audit log');
    await page.getByRole('row', { name: /namespace\.delete .*to delete/ }).waitFor();
  });

  test('identifiers are text: HTML is shown, and characters that hide or turn text are named', async () => {
    const page = await openSignedIn();
    await goTo(page, '#/overrides', 'Overrides');
    await page.getByText(HTML_IDENTIFIER).waitFor();
    expect(await page.locator('img').count()).toBe(0);
    await page.getByRole('row', { name: 'evilU+202Egnp.exe' }).waitFor();
    expect(await page.evaluate('document.body.innerText')).not.toContain('\u202e');
    expect(await page.title()).toBe('Overrides – weir');
  });

  test('views and buttons that the key may not use are hidden, and say why if opened', async () => {
    const { key } = await createKey('watcher', ['ratelimit.*.read_namespace']);
    const page = await openSignedIn(key);
    const links = await page.getByRole('navigation').getByRole('link').allTextContents();
    expect(links).toEqual(['Overview', 'Namespaces', 'Policies', 'Identifier']);
    await see(page, 'Figures of namespaces need the permission read_analytics.');
    await goTo(page, '#/audit', 'Audit log');
    await see(page, 'This needs the permission read_audit.');
    await goTo(page, '#/keys', 'Keys');
    await see(page, 'This needs the permission keys.read.');
    expect(await page.getByRole('button', { name: 'Create key' }).count()).toBe(0);
    await goTo(page, '#/identifier', 'Identifier');
    expect(await page.getByRole('button', { name: 'Reset' }).count()).toBe(0);
  });

  describe('by keyboard only', () => {
    /** Presses Tab until a control of this name has the focus. */
    async function tabTo(page: Page, name: string | RegExp): Promise<void> {
      for (let i = 0; i < 100; i++) {
        await page.keyboard.press('Tab');
        const focused = await page.evaluate<string>(`(() => {
          const { activeElement: it } = document;
          return it.getAttribute('aria-label') ?? it.labels?.[0]?.textContent ?? it.textContent;
        })()`);
        if (typeof name === 'string' ? focused.trim() === name : name.test(focused)) return;
      }
      throw new Error(`Tab does not reach ${name}`);
    }
    const focusedText = (page: Page) => {
      return page.evaluate<string>('document.activeElement.textContent');
    };

    test('a user signs in, adds an override, and revokes a key', async () => {
      await createKey('to revoke', ['keys.read']);
      const page = await open();
      await tabTo(page, 'API key');
      await page.keyboard.type(ROOT_KEY);
      await page.keyboard.press('Enter');
      await heading(page, 'Overview');
      await tabTo(page, 'Overrides');
      await page.keyboard.press('Enter');
      await heading(page, 'Overrides');
      await expect.poll(() => focusedText(page)).toBe('Overrides');
      await tabTo(page, 'Add override');
      await page.keyboard.press('Enter');
      // The first field has the focus.
      await expect.poll(() => page.evaluate("document.activeElement.matches('input')")).toBe(true);
      await page.keyboard.type('login');
      await tabTo(page, 'Identifier');
      await page.keyboard.type('by_keyboard');
      await tabTo(page, 'Limit');
      await page.keyboard.type('5');
      await page.keyboard.press('Enter');
      await see(page, 'The override of by_keyboard in login was added.');
      await expect.poll(() => focusedText(page)).toBe('Add override');
      await tabTo(page, 'Keys');
      await page.keyboard.press('Enter');
      await heading(page, 'Keys');
      await expect.poll(() => focusedText(page)).toBe('Keys');
      await page.getByRole('button', { name: 'Revoke to revoke' }).waitFor();
      await tabTo(page, 'Revoke to revoke');
      await page.keyboard.press('Enter');
      await tabTo(page, 'Revoke key');
      await page.keyboard.press('Enter');
      await see(page, 'The key to revoke was revoked.');
    });

    test('a user orders a table, and finds an identifier', async () => {
      for (const [identifier, limit] of [
        ['order_1', 20],
        ['order_2', 3],
        ['order_3', 100],
      ] as const) {
        const fields = { namespaceName: 'ordered', identifier, limit, duration: 60_000 };
        await callOperationOk(server.port, 'ratelimits.setOverride', fields);
      }
      const page = await openSignedIn();
      await goTo(page, '#/overrides?namespace=ordered', 'Overrides');
      const limits = async () => {
        const rows = await page.getByRole('row', { name: /^order_/ }).allTextContents();
        return rows.map((text) => Number(/ordered(\d+) per 1 min/.exec(text)?.[1]));
      };
      await page.getByRole('row', { name: /^order_3 / }).waitFor();
      const column = page.getByRole('columnheader', { name: 'Limit', exact: true });
      await tabTo(page, 'Limit');
      await page.keyboard.press('Enter');
      await expect.poll(limits).toEqual([3, 20, 100]);
      expect(await column.getAttribute('aria-sort')).toBe('ascending');
      await page.keyboard.press('Space');
      await expect.poll(limits).toEqual([100, 20, 3]);
      expect(await column.getAttribute('aria-sort')).toBe('descending');
      // In a field it is a character.
      await page.getByLabel('Search').fill('a');
      await page.keyboard.press('/');
      expect(await page.getByLabel('Search').inputValue()).toBe('a/');
      await page.getByRole('heading', { level: 1 }).focus();
      await page.keyboard.press('/');
      await page.keyboard.type('order/1');
      await page.keyboard.press('Enter');
      await see(page, /^order\/1 has no counter, no hold/);
      expect(await page.evaluate('location.hash')).toBe('#/identifier?identifier=order%2F1');
    });

    test('the first link skips to the content of the same view', async () => {
      const page = await openSignedIn();
      await goTo(page, '#/policies', 'Policies');
      await reload(page);
      await heading(page, 'Policies');
      await page.keyboard.press('Tab');
      expect(await focusedText(page)).toBe('Skip to the content');
      await page.keyboard.press('Enter');
      await heading(page, 'Policies');
      // The browser goes to the anchor first, and the page then names its view again.
      await expect.poll(() => page.evaluate('location.hash')).toBe('#/policies');
      expect(await page.evaluate('document.activeElement.id')).toBe('content');
    });
  });

  test('the choice of light or dark is kept', async () => {
    const page = await openSignedIn();
    const background = () => page.evaluate('getComputedStyle(document.body).backgroundColor');
    const light = await background();
    await page.getByLabel('Theme').selectOption('dark');
    const dark = await background();
    expect(dark).not.toBe(light);
    await reload(page);
    await heading(page, 'Overview');
    expect(await background()).toBe(dark);
  });

  test('a second tab takes over the figures, and the first can take them back', async () => {
    const page = await openSignedIn();
    const second = await page.context().newPage();
    await second.goto(server.adminUrl);
    await second.getByText('By namespace, last 10 s').first().waitFor();
    await see(page, 'Another tab of this browser shows the live figures.');
    await press(page, 'Show them here');
    await second.getByText('Another tab of this browser shows the live figures.').waitFor();
  });

  test('a wrong key, a sign-out and a revoked key are explained on the page', async () => {
    const page = await open();
    await page.getByLabel('API key').fill('not-a-key-of-weir');
    await page.keyboard.press('Enter');
    await page.getByRole('alert').getByText('the API key is not known here').waitFor();
    const { key, keyId } = await createKey('short', ['keys.read']);
    await page.getByLabel('API key').fill(key);
    await page.keyboard.press('Enter');
    await heading(page, 'Overview');
    await see(page, 'ready');
    await callOperationOk(server.port, 'keys.revoke', { keyId });
    await see(page, 'You are signed out: the API key of the session was revoked.');
    await page.getByLabel('API key').fill(ROOT_KEY);
    await page.keyboard.press('Enter');
    await heading(page, 'Overview');
    await press(page, 'Sign out');
    await page.getByRole('button', { name: 'Sign in' }).waitFor();
    await reload(page);
    await page.getByRole('button', { name: 'Sign in' }).waitFor();
    forgetFailedRequests();
  });

  test('a lost connection shows a banner; a restart of weir leads to the sign-in', async () => {
    const ownDir = temporaryDirectory();
    const ports = ['--port', String(await freePort()), '--admin-port', String(await freePort())];
    const start = () => startServer(ownDir, { args: ['--counters', '1024', ...ports] });
    const first = await start();
    const at = { ...first, adminUrl: `http://127.0.0.1:${ports[3]}` };
    let second: ServerProcess | undefined;
    try {
      const page = await openSignedIn(ROOT_KEY, at);
      await see(page, 'ready');
      await first.stop();
      await see(page, 'The connection to weir is lost.');
      second = await start();
      await see(page, 'You are signed out: the session is over, or weir');
      forgetFailedRequests();
    } finally {
      first.child.kill('SIGKILL');
      await second?.stop();
      removeDirectory(ownDir);
    }
  });
});
