import { expect, test as base, type Page } from '@playwright/test';
import { Server } from './server';

/**
 * A page whose browser reaches this machine alone, and which fails a test that leaves an error in its console or breaks
 * its policy of content.
 */
export const test = base.extend<{ faults: string[] }>({
  faults: async ({ page, context }, use) => {
    const faults: string[] = [];
    await context.route(/.*/, (route) => {
      const { hostname, protocol } = new URL(route.request().url());
      if (hostname === '127.0.0.1' || protocol === 'data:' || protocol === 'blob:') return route.continue();
      faults.push(`it asked for ${route.request().url()}`);
      return route.abort();
    });
    await context.addInitScript(() => {
      document.addEventListener('securitypolicyviolation', (event) => {
        // Browsers carry the style of text along that is typed over. Refusing that does no harm: the editor draws it again.
        const isTyped = event.effectiveDirective === 'style-src-attr' && event.sourceFile === '' && document.querySelector('.cm-editor');
        if (isTyped) return;
        console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample} ${event.sourceFile}:${event.lineNumber}`);
      });
    });
    page.on('pageerror', (error) => faults.push(`exception: ${error.message}`));
    page.on('console', (message) => {
      // Answers that are errors are the tests' own matter, and what the policy refuses is an event above.
      const isKnown = ['Failed to load resource', 'Applying inline style violates'].some((begin) => message.text().startsWith(begin));
      if (message.type() === 'error' && !isKnown) faults.push(message.text());
    });
    await use(faults);
    expect(faults).toEqual([]);
  },
});

export async function open(page: Page, server: Server, hash = '/jobs') {
  await page.goto(`${server.url}/#token=${server.token}&to=${encodeURIComponent(hash)}`);
}

export { expect };
