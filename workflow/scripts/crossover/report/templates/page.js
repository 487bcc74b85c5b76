"use strict";

const all = (selector, root = document) => [...root.querySelectorAll(selector)];

// Charts: made when they come near the screen, so that the verdict waits for none of them; the
// static drawing stays where the live one cannot be made.
const config = JSON.parse(document.getElementById("chart-config").textContent);
const views = new Map(); // figure → its Vega view
const off = new Set(); // variants that are switched off

async function bringToLife(figure) {
  const spec = JSON.parse(figure.querySelector("script.spec").textContent);
  figure.classList.add("is-live");
  try {
    const { view } = await vegaEmbed(figure.querySelector(".live"), spec, {
      ast: true, // expressions are interpreted: the page's policy forbids eval
      actions: false,
      config,
      defaultStyle: false,
      logLevel: 1, // errors: a layer without rows, as of a variant that is off, is none
      renderer: "svg",
      tooltip: { disableDefaultStyle: true },
    });
    views.set(figure, view);
    await tell(figure);
  } catch (error) {
    figure.classList.remove("is-live");
    console.error(error);
  }
}

// What the reader has chosen, for one chart.
function tell(figure) {
  const view = views.get(figure);
  if (!view) return;
  view.signal("off", [...off]);
  const choice = figure.querySelector(".choice select");
  if (choice) view.signal("chosen", choice.value);
  return view.runAsync();
}

const watcher = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      watcher.unobserve(target);
      bringToLife(target);
    }
  },
  { rootMargin: "400px" },
);
for (const spec of all("script.spec")) watcher.observe(spec.closest("figure"));

for (const select of all(".choice select")) {
  const figure = select.closest("figure");
  select.disabled = false;
  select.addEventListener("change", () => tell(figure));
}

// Variants: one switch for all charts.
for (const button of all("button.switch")) {
  const { variant } = button.dataset;
  button.addEventListener("click", () => {
    const shown = off.delete(variant);
    if (!shown) off.add(variant);
    button.setAttribute("aria-pressed", shown);
    for (const entry of all(".legend li")) {
      if (entry.dataset.variant === variant) entry.classList.toggle("off", !shown);
    }
    for (const figure of views.keys()) tell(figure);
  });
}

// Workload and metric: what is not chosen is out of sight on the screen, never on paper.
function choose(id, name, elements) {
  const select = document.getElementById(id);
  if (!select) return;
  const apply = () => {
    for (const element of elements) {
      const shown = !select.value || element.dataset[name] === select.value;
      element.classList.toggle("aside", !shown);
    }
  };
  select.addEventListener("change", apply);
  apply();
}
choose("workload", "workload", all("[data-workload]"));
choose("metric", "metric", all("figure[data-metric]"));
const controls = document.querySelector(".controls");
controls.hidden = false;
// What a link leads to must not lie under them, however many rows they take.
new ResizeObserver(() =>
  document.documentElement.style.setProperty("--controls-height", `${controls.offsetHeight}px`),
).observe(controls);

// A link opens what it leads to.
function openTarget() {
  let element = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  for (; element; element = element.parentElement) {
    if (element.tagName === "DETAILS") element.open = true;
  }
}
addEventListener("hashchange", openTarget);
openTarget();

// Theme: the system's until the reader chooses.
const root = document.documentElement;
const toggle = document.getElementById("theme");
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches);
const name = () => {
  toggle.textContent = isDark() ? "Light theme" : "Dark theme";
};
toggle.addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  name();
});
systemDark.addEventListener("change", name);
name();
toggle.hidden = false;

// Copying; where the browser forbids it, the text is selected instead.
for (const button of all("button.copy")) {
  const text = button.parentElement.querySelector("pre");
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(text);
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
}

// Paper shows everything.
const opened = [];
addEventListener("beforeprint", () => {
  for (const details of all("details:not([open])")) {
    details.open = true;
    opened.push(details);
  }
});
addEventListener("afterprint", () => {
  while (opened.length) opened.pop().open = false;
});
