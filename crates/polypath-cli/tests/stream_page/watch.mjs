// Plays the page of `polypath stream` in a headless Chromium and says how that went: node watch.mjs URL SECONDS [PICTURE.png]
//
// Prints one line of JSON: {"time":..,"stalls":..,"ahead":..,"error":..}. `time` is where the film is, in seconds, `stalls` how often
// the player had to wait after it began, `ahead` how many seconds it holds, `error` the page's words for what went wrong, or null.
// For pictures: WATCH_SIZE=400x1400, WATCH_SCHEME=dark, WATCH_FLAGS='--flags of Chromium'.
// The seconds count from when the film begins, and it gets as many to begin. Exit codes: 0 watched (look at the JSON), 2 wrong
// arguments or a browser that fails, 77 no Chromium. It needs Node 20, and no packages.

import { spawn } from 'node:child_process';
import { accessSync, constants, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'];
const ANSWER_MS = 20_000;

const pause = ms => new Promise(done => setTimeout(done, ms));

function findChromium() {
  for (const name of NAMES) {
    for (const folder of (process.env.PATH ?? '').split(delimiter)) {
      try {
        accessSync(join(folder, name), constants.X_OK);
        return join(folder, name);
      } catch { /* Not here. */ }
    }
  }
  return null;
}

/// A browser that is driven over a pipe: messages of the DevTools protocol, each ended by a zero byte.
class Browser {
  #process; #folder; #waiting = new Map(); #last = 0; #complaints = [];

  constructor(program) {
    this.#folder = mkdtempSync(join(tmpdir(), 'polypath-watch-'));
    this.#process = spawn(program, [
      '--headless=new', '--remote-debugging-pipe', `--user-data-dir=${this.#folder}`, '--no-first-run', '--no-default-browser-check',
      // Tests run as root and in containers, where the browser's own sandbox can't.
      '--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', '--mute-audio', '--autoplay-policy=no-user-gesture-required',
      '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-quic', '--no-proxy-server',
      ...(process.env.WATCH_FLAGS ?? '').split(' ').filter(Boolean),
    ], { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });
    this.#process.on('error', () => this.#end());
    this.#process.on('exit', () => this.#end());
    this.#process.stdio[3].on('error', () => {});
    let rest = Buffer.alloc(0);
    this.#process.stdio[4].on('data', chunk => {
      rest = Buffer.concat([rest, chunk]);
      for (let zero; (zero = rest.indexOf(0)) >= 0; rest = rest.subarray(zero + 1)) {
        this.#take(JSON.parse(rest.subarray(0, zero).toString()));
      }
    });
  }

  #take(message) {
    const entry = message.params?.entry;
    if (message.method === 'Log.entryAdded' && entry.level === 'error' && entry.source === 'security') this.#complaints.push(entry.text);
    if (message.method === 'Runtime.exceptionThrown') this.#complaints.push(message.params.exceptionDetails.exception?.description);
    const wait = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    if (message.error) wait?.reject(new Error(message.error.message));
    else wait?.resolve(message.result);
  }

  #end() {
    for (const wait of this.#waiting.values()) wait.reject(new Error('Chromium ended'));
    this.#waiting.clear();
  }

  ask(method, params = {}, sessionId = undefined) {
    const id = ++this.#last;
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => { this.#waiting.delete(id); reject(new Error(`Chromium does not answer ${method}`)); }, ANSWER_MS);
      const settled = then => value => { clearTimeout(late); then(value); };
      this.#waiting.set(id, { resolve: settled(resolve), reject: settled(reject) });
      this.#process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    });
  }

  /// What broke the page: a script's exception, or one that the page's policy refused.
  complaint() { return this.#complaints[0] ?? null; }

  async close() {
    const ended = new Promise(done => this.#process.exitCode === null && this.#process.signalCode === null ? this.#process.once('exit', done) : done());
    await this.ask('Browser.close').catch(() => {});
    await Promise.race([ended, pause(3000)]);
    if (this.#process.exitCode === null) { this.#process.kill('SIGKILL'); await Promise.race([ended, pause(1000)]); }
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }
}

async function watch(browser, url, seconds, picture) {
  const { targetId } = await browser.ask('Target.createTarget', { url: 'about:blank' });
  const { sessionId } = await browser.ask('Target.attachToTarget', { targetId, flatten: true });
  for (const domain of ['Page', 'Runtime', 'Log']) await browser.ask(`${domain}.enable`, {}, sessionId);
  const [width, height] = (process.env.WATCH_SIZE ?? '1000x1200').split('x').map(Number);
  await browser.ask('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: false }, sessionId);
  const scheme = process.env.WATCH_SCHEME ?? 'light';
  await browser.ask('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] }, sessionId);
  const { errorText } = await browser.ask('Page.navigate', { url }, sessionId);
  if (errorText) return { time: 0, stalls: 0, ahead: 0, error: `The page can't be read: ${errorText}` };

  const read = async () => {
    const expression = 'JSON.stringify({ ...document.documentElement.dataset })';
    const { result } = await browser.ask('Runtime.evaluate', { expression }, sessionId);
    // While the page is coming there is no document.
    return JSON.parse(result.value ?? '{}');
  };
  let seen = await read();
  for (const until = Date.now() + seconds * 1000; !(Number(seen.time) > 0) && Date.now() < until; seen = await read()) await pause(100);
  const isBegun = Number(seen.time) > 0;
  if (isBegun) { await pause(seconds * 1000); seen = await read(); }
  if (picture) {
    const { data } = await browser.ask('Page.captureScreenshot', { captureBeyondViewport: true }, sessionId);
    writeFileSync(picture, Buffer.from(data, 'base64'));
  }
  const error = browser.complaint() || seen.error || (isBegun ? null : 'The film did not begin.');
  return { time: Number(seen.time ?? 0), stalls: Number(seen.stalls ?? 0), ahead: Number(seen.ahead ?? 0), error };
}

const [url, text, picture] = process.argv.slice(2);
const seconds = Number(text);
const program = findChromium();
if (!URL.canParse?.(url ?? '') || !(seconds > 0)) {
  console.error('watch.mjs: expected a URL and how many seconds to play: node watch.mjs http://127.0.0.1:8080/ 30');
  process.exitCode = 2;
} else if (!program) {
  console.error(`watch.mjs: no Chromium in PATH (looked for ${NAMES.join(', ')}); install it, as with: apt-get install chromium`);
  process.exitCode = 77;
} else {
  const browser = new Browser(program);
  try {
    console.log(JSON.stringify(await watch(browser, url, seconds, picture)));
  } catch (failure) {
    console.error(`watch.mjs: ${failure.message}`);
    process.exitCode = 2;
  } finally {
    await browser.close();
  }
}
