def run(browser, client): pass
