"""Scripts that check a page: axe, and checks that axe doesn't have or that depend on the width."""

# All rules, and the rules that depend on colors. The results of the other rules are the same in both color schemes.
RULES = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
COLOR_RULES = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}

AXE = """
const done = arguments[1];
axe.run(document, {runOnly: arguments[0], resultTypes: ['violations']}).then(
  ({violations}) => done(violations.map((one) =>
    `axe ${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 200)).join(' | ')}`)),
  (error) => done([`axe failed: ${error}`]));
"""

# Finds layout errors of a page at a width and in a color scheme. Takes a tenth of axe's time.
LOOK = """
const bad = [];
const html = (node) => node.outerHTML.slice(0, 160);
const all = [...document.body.querySelectorAll('*')];
const shown = all.filter((node) => node.checkVisibility({visibilityProperty: true}));

// Targets have 24 px (WCAG 2.5.8). A label is part of its box. Links in a sentence have its height.
for (const node of document.querySelectorAll('a, button, input:not([type=hidden]), select, textarea, summary')) {
  const rect = node.getBoundingClientRect();
  if (!rect.width || node.closest('.hidden, .skip, details:not([open]) > ul')) continue;
  const box = node.labels?.length && /checkbox|radio/.test(node.type) ? node.labels[0].getBoundingClientRect() : rect;
  if (getComputedStyle(node).display !== 'inline' && (box.width < 24 || box.height < 24)) {
    bad.push(`a target of ${box.width} x ${box.height}: ${html(node)}`);
  }
}

const width = document.documentElement.scrollWidth;
if (width > innerWidth) {
  const wide = all.filter((node) => node.getBoundingClientRect().right > innerWidth + 1 && !node.closest('.table, pre'));
  bad.push(`${width} px wide: ${wide.slice(-2).map(html).join(' | ')}`);
}
// A table uses the width of a wide window.
for (const node of innerWidth < 1280 ? [] : document.querySelectorAll('.table')) {
  if (node.scrollWidth > node.clientWidth) bad.push(`a table of ${node.scrollWidth} px in ${node.clientWidth} px: ${node.ariaLabel}`);
}
if (![...document.styleSheets].some((sheet) => sheet.cssRules.length)) bad.push('the style was refused');
const ids = [...document.querySelectorAll('[id]')].map((node) => node.id);
for (const id of new Set(ids.filter((id, index) => ids.indexOf(id) !== index))) bad.push(`two elements have the id ${id}`);
for (const name of ['aria-describedby', 'aria-labelledby', 'for']) {
  for (const node of document.querySelectorAll(`[${name}]`)) {
    for (const id of node.getAttribute(name).split(' ').filter(Boolean)) {
      if (!ids.includes(id)) bad.push(`${name} names ${id}, which isn't there`);
    }
  }
}
for (const image of document.images) if (!image.naturalWidth) bad.push(`no picture: ${image.outerHTML}`);
const rows = {};
for (const label of document.querySelectorAll('.filters .field > label:first-child')) {
  const [above, control] = [label, label.nextElementSibling].map((node) => node.getBoundingClientRect());
  (rows[Math.round(control.bottom)] ??= []).push(above.top);
}
for (const tops of Object.values(rows)) {
  if (Math.max(...tops) - Math.min(...tops) > 0.1) bad.push(`labels of a row of filters begin at ${tops}`);
}
if (!document.title || document.querySelectorAll('h1').length !== 1) bad.push('no title, or not one h1');

// What can be scrolled can be reached by the keyboard, itself or by what is in it.
const stops = 'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]:not([tabindex="-1"])';
for (const node of shown) {
  if (node.scrollWidth <= node.clientWidth && node.scrollHeight <= node.clientHeight) continue;
  const {overflowX, overflowY, display} = getComputedStyle(node);
  const scrolls = (node.scrollWidth > node.clientWidth && /auto|scroll/.test(overflowX))
    || (node.scrollHeight > node.clientHeight && /auto|scroll/.test(overflowY));
  if (display !== 'inline' && scrolls && !node.matches(stops) && !node.querySelector(stops)) bad.push(`no key scrolls ${html(node)}`);
}

// Another width shows other things: their names, the levels of headings, and the contrast of each text.
for (const node of shown.filter((node) => node.matches('a[href], button, summary, input:not([type=hidden]), select, textarea'))) {
  const names = [node.getAttribute('aria-label'), node.innerText, node.alt, ...[...node.labels ?? []].map((label) => label.textContent)];
  if (!names.some((name) => name?.trim()) && !node.hasAttribute('aria-labelledby') && !node.closest('[aria-hidden=true]')) bad.push(`no name: ${html(node)}`);
}
const levels = shown.filter((node) => node.matches('h1, h2, h3, h4, h5, h6')).map((node) => Number(node.tagName[1]));
levels.forEach((level, at) => { if (at && level > levels[at - 1] + 1) bad.push(`a heading of level ${level} after ${levels[at - 1]}`); });
const light = (color) => {
  const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (node) => {
  for (; node; node = node.parentElement) {
    const color = getComputedStyle(node).backgroundColor;
    if (/^rgb\\(/.test(color)) return color;
  }
  return 'rgb(255, 255, 255)';
};
// Bars are told apart from the page and from their own background; words repeat their color.
for (const bar of shown.filter((node) => node.matches('.bar'))) {
  const {fill, backgroundColor} = getComputedStyle(bar);
  for (const back of [backgroundColor, behind(bar.parentElement)]) {
    const [a, b] = [fill, back].map(light);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 3) bad.push(`contrast ${ratio.toFixed(2)} of a bar, ${fill} on ${back}`);
  }
  if (!bar.matches('.good') && !bar.parentElement.querySelector('.badge')) bad.push(`no word next to ${html(bar)}`);
}
const contrasts = {};
for (const node of shown) {
  const own = [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim());
  if (!own && !node.matches('input, textarea') || node.matches('option, svg *, :disabled, [aria-disabled=true]')) continue;
  const pair = [getComputedStyle(node).color, behind(node)];
  if (pair in contrasts) continue;
  const [a, b] = pair.map(light);
  contrasts[pair] = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (contrasts[pair] < 4.5) bad.push(`contrast ${contrasts[pair].toFixed(2)} of ${pair.join(' on ')}: ${html(node)}`);
}
"""

# Measures how the page loaded: the sizes of the page and its files, the layout shifts after the first paint, the
# status, and the text. The layout shift of a frame is reported when the next frame begins.
LOAD = """
const done = arguments[0];
const shifts = [];
const words = ({node}) => (node?.outerHTML ?? node?.data ?? 'something').slice(0, 120);
const [page] = performance.getEntriesByType('navigation');
const add = (entries) => {
  for (const {value, startTime, hadRecentInput, sources} of entries) {
    const times = `after ${startTime} ms, the end read after ${page.domInteractive} ms, input ${hadRecentInput}`;
    shifts.push(`${value}, ${times}: ${sources.map(words).join(' | ')}`);
  }
};
const observer = new PerformanceObserver((list) => add(list.getEntries()));
observer.observe({type: 'layout-shift', buffered: true});
const files = performance.getEntriesByType('resource').filter((one) => /[.](css|js)$/.test(one.name));
requestAnimationFrame(() => requestAnimationFrame(() => {
  add(observer.takeRecords());
  observer.disconnect();
  done({shifts, status: page.responseStatus, page: page.decodedBodySize,
    files: files.reduce((sum, file) => sum + file.decodedBodySize, 0), text: document.querySelector('main')?.innerText ?? ''});
}));
"""
