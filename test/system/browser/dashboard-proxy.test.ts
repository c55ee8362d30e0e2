/** The dashboard in Chromium behind nginx, which signs in users by their passwords. */

import { chmodSync } from 'node:fs';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { removeDirectory } from '../../support/server.ts';
import { useServer } from '../../support/test-server.ts';
import type { Gateway } from '../gateways/gateway-process.ts';
import { realNginx } from '../gateways/real-gateways.ts';
import { basicAuth, PASSWORD, proxySettings, startBasicAuth } from '../gateways/sign-in-proxies.ts';
import { accessibilityFaultsOf, isChromiumMissing, launchChromium } from './chromium.ts';

const VIEWER = 'vic';
const ADMIN = 'ann@example.com';

const settings = proxySettings(`${ADMIN}=admin`);
afterAll(() => removeDirectory(settings.directory));

describe.skipIf(isChromiumMissing || realNginx.isMissing)('the dashboard behind a proxy', () => {
  const server = useServer({ env: settings.env });
  let proxy: Gateway;
  let browser: Browser;
  beforeAll(async () => {
    // The workers of nginx run as another user.
    chmodSync(settings.directory, 0o755);
    proxy = await startBasicAuth(server.adminUrl, [VIEWER, ADMIN], settings.directory);
    browser = await launchChromium();
    const override = { namespaceName: 'api', identifier: 'user_1', limit: 1, duration: 60_000 };
    await server.ok('ratelimits.setOverride', override);
  });
  afterAll(async () => {
    await browser?.close();
    await proxy?.stop();
  });

  async function openAs(username: string): Promise<Page> {
    const context = await browser.newContext({
      httpCredentials: { username, password: PASSWORD, send: 'always' },
    });
    const page = await context.newPage();
    await page.goto(`http://127.0.0.1:${proxy.port}`);
    await heading(page, 'Overview');
    return page;
  }
  const heading = (page: Page, name: string) => {
    return page.getByRole('heading', { level: 1, name, exact: true }).waitFor();
  };
  const links = (page: Page) => page.getByRole('navigation').getByRole('link').allTextContents();

  test('asks a user for no key, and shows what the role permits', async () => {
    const page = await openAs(VIEWER);
    await page.locator('.account').getByText(VIEWER).waitFor();
    expect(await page.locator('.account').textContent()).toBe(`viewer ${VIEWER}`);
    await page.getByText('By namespace, last 10 s').first().waitFor();
    expect(await links(page)).toEqual([
      ...['Overview', 'Namespaces', 'Policies', 'Overrides', 'Blocks'],
      ...['Identifier', 'Recent decisions', 'Audit log'],
    ]);
    await page.getByRole('link', { name: 'Overrides' }).click();
    await page.getByRole('row', { name: /^user_1 / }).waitFor();
    expect(await page.getByRole('button', { name: /^(Add override|Change|Delete)/ }).count()).toBe(
      0,
    );
    await page.reload();
    await heading(page, 'Overrides');
  });

  test('lets an admin change something, and names the user in the audit log', async () => {
    const page = await openAs(ADMIN);
    await page.getByRole('link', { name: 'Overrides' }).click();
    await page.getByRole('button', { name: 'Delete user_1' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete override' }).click();
    await page.getByText('The override of user_1 in api was deleted.').waitFor();
    await page.getByRole('link', { name: 'Audit log' }).click();
    await page.getByRole('row', { name: /override\.delete ann@example\.com \(user\)/ }).waitFor();
  });

  test('says after a sign-out who is signed in by the proxy, and starts again by a button', async () => {
    const page = await openAs(VIEWER);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByText(`The proxy in front of weir has signed you in as ${VIEWER}.`).waitFor();
    expect(await page.getByLabel('API key').count()).toBe(0);
    expect(await accessibilityFaultsOf(page)).toEqual([]);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await heading(page, 'Overview');
  });

  test('shows after a change of the user the new one', async () => {
    const page = await openAs(VIEWER);
    await page.context().setHTTPCredentials(null);
    await page.context().setExtraHTTPHeaders(basicAuth(ADMIN));
    await page.getByRole('link', { name: 'Audit log' }).click();
    await page.getByText('You are signed out: the proxy has signed in another user.').waitFor();
    await page.getByText(`The proxy in front of weir has signed you in as ${ADMIN}.`).waitFor();
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.locator('.account').getByText(ADMIN).waitFor();
  });
});
